"""The web page: the built files of `web/`, and the routes that serve them."""
