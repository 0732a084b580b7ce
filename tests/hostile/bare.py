"""Lets the tree's own library be imported on a machine that has nothing but the tree.

The executor reads its configuration with ConfigObj; nothing here reads any. To be imported before
anything of `oj`.
"""

from __future__ import annotations

import importlib.util
import sys
import types

MISSING = {
    "configobj": ("ConfigObj", "ConfigObjError", "flatten_errors", "get_extra_values"),
    "validate": ("ValidateError", "Validator"),
}

if importlib.util.find_spec("configobj") is None:
    for name, parts in MISSING.items():
        module = types.ModuleType(name)
        vars(module).update({part: type(part, (Exception,), {}) for part in parts})
        sys.modules[name] = module
