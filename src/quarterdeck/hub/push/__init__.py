"""Web push: notifications to devices that are not connected."""
