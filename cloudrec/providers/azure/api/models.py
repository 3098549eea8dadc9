"""The models of Azure's SDK, by service: typed, imported when first used, and safe for several threads.

A model class of the SDK computes its fields when its first instance is created, and this is not thread-safe:
if two threads create the first instances at the same time, nested values may silently stay plain dictionaries
(https://github.com/Azure/azure-sdk-for-python/issues/47426). So `load_models` creates one instance of each
class under a lock.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloudrec.providers.base.lazy import Lazy

if TYPE_CHECKING:
    from types import ModuleType

_LOADED: dict[str, ModuleType] = {}  # name -> a module whose classes have computed their fields
_LOADING = threading.Lock()


def load_models(name: str) -> ModuleType:
    """Import a module of models and let each class compute its fields; safe to call from several threads."""
    with _LOADING:
        if name not in _LOADED:
            module = import_module(name)
            models: list[Any] = [each for each in vars(module).values() if isinstance(each, type)]
            for model in models:
                if hasattr(model, "_calculated"):
                    model.__new__(model)
            _LOADED[name] = module
        return _LOADED[name]


if TYPE_CHECKING:
    from azure.mgmt.authorization.v2022_04_01 import models as authorization
    from azure.mgmt.compute import models as compute
    from azure.mgmt.containerregistry import models as containerregistry
    from azure.mgmt.containerservice import models as containerservice
    from azure.mgmt.msi.v2024_11_30 import models as managedidentity
    from azure.mgmt.network import models as network
    from azure.mgmt.resource.resources import models as resources
    from azure.mgmt.resource.subscriptions import models as subscriptions
    from azure.mgmt.storage import models as storage
    from azure.mgmt.storagecache import models as storagecache
else:
    authorization = Lazy("azure.mgmt.authorization.v2022_04_01.models", load_models)
    compute = Lazy("azure.mgmt.compute.models", load_models)
    containerregistry = Lazy("azure.mgmt.containerregistry.models", load_models)
    containerservice = Lazy("azure.mgmt.containerservice.models", load_models)
    managedidentity = Lazy("azure.mgmt.msi.v2024_11_30.models", load_models)
    network = Lazy("azure.mgmt.network.models", load_models)
    resources = Lazy("azure.mgmt.resource.resources.models", load_models)
    subscriptions = Lazy("azure.mgmt.resource.subscriptions.models", load_models)
    storage = Lazy("azure.mgmt.storage.models", load_models)
    storagecache = Lazy("azure.mgmt.storagecache.models", load_models)

__all__ = [
    "authorization",
    "compute",
    "containerregistry",
    "containerservice",
    "load_models",
    "managedidentity",
    "network",
    "resources",
    "storage",
    "storagecache",
    "subscriptions",
]
