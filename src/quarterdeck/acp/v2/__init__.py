"""The Agent Client Protocol, version 2: types, and methods for both sides.

Decode, encode and call with the functions of `quarterdeck.acp`; they take the types of either
version: `v2.methods.SESSION_NEW.read_response(result)`. Types of version 2 cost nothing until this
package is imported.
"""

from quarterdeck.acp.lenient import register
from quarterdeck.acp.model import FieldRules
from quarterdeck.acp.v2 import field_rules, methods, schema
from quarterdeck.acp.v2.field_rules import UNSTABLE_FIELDS, UNSTABLE_TYPES
from quarterdeck.acp.v2.methods import PROTOCOL_VERSION
from quarterdeck.acp.v2.unions import UNIONS

register(schema.__name__, UNIONS, FieldRules.of(field_rules))

__all__ = ["PROTOCOL_VERSION", "UNSTABLE_FIELDS", "UNSTABLE_TYPES", "methods", "schema"]
