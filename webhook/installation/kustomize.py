"""Where the manifests are, and a small renderer of kustomizations: what they use of kustomize, and nothing else.

The manifests are in the checkout or among the data files of the installed package, and have no copy. The renderer
exists so that `giveway install` needs neither kubectl nor a copy of the rendered YAML, and can add any component, a
platform team's own too. A field that it does not know is an error, never passed over. `tests/installation` holds what
it makes of the base with every component against `kubectl kustomize`.
"""

import copy
import sysconfig
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from webhook.kube.json_patch import JsonPatchError, apply_json_patch
from webhook.kube.pods import TEMPLATE_PATHS

Json = dict[str, Any]

_FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_FIELDS = (
    *("apiVersion", "kind", "metadata", "resources", "components"),
    *("configMapGenerator", "patches", "namespace", "labels", "images"),
)
_CLUSTER_WIDE = (
    *("ClusterIssuer", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "FlowSchema", "Namespace"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "PriorityClass"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"),
    "PriorityLevelConfiguration",
)
"""Kinds that lie in no namespace."""
_CHECKOUT = Path(__file__).parents[2]
_INSTEAD = "render it with kubectl kustomize and apply that"


class ManifestsError(Exception):
    """The manifests cannot be found or rendered, or not for this cluster; the text says what is wrong and where."""


def manifests() -> Path:
    """The directory `manifests`, with `policies` beside it. Raises ManifestsError if this installation has none."""
    installed = Path(sysconfig.get_path("data")) / "share" / "giveway"
    for root in (_CHECKOUT, installed):
        if (root / "manifests" / "base" / "kustomization.yaml").is_file():
            return root / "manifests"
    raise ManifestsError(
        f"this installation of giveway has no manifests: neither {_CHECKOUT} nor {installed} holds them"
    )


def components(given: tuple[str, ...]) -> list[Path]:
    """The directories of components, by the name of a shipped one or by path. Raises ManifestsError for others."""
    shipped = {path.name: path for path in all_components()}
    folders = []
    for name in given:
        path = shipped.get(name, Path(name))
        if not path.is_dir():
            raise ManifestsError(f"there is no component {name}; there are {', '.join(shipped)}, or give a directory")
        folders.append(path)
    return folders


def all_components() -> list[Path]:
    """The directories of all shipped components, in the order of their names."""
    return sorted(path.parent for path in (manifests() / "components").glob("*/kustomization.yaml"))


def render(base: Path, components: Iterable[Path] = (), images: Iterable[Json] = ()) -> list[Json]:
    """The objects of a kustomization of its own with this base, these components, and these `images` entries.

    Raises ManifestsError for files that cannot be read, and for whatever of kustomize is not known here.
    """
    objects = _kustomization(base, [])
    for component in components:
        objects = _kustomization(component, objects)
    for image in images:
        _set_image(objects, image)
    return objects


def parse_image(text: str) -> Json:
    """`--image` as an entry of `images`: `registry/name`, `registry/name:tag` or `registry/name@sha256:…`."""
    head, tag, digest = _image_parts(text)
    if not head or any(character.isspace() for character in text):
        raise ManifestsError(f"{text!r} is not an image such as registry.example.com/giveway:0.1.0")
    entry = {"name": "giveway", "newName": head}
    return entry | ({"newTag": tag} if tag else {}) | ({"digest": digest} if digest else {})


def _kustomization(directory: Path, below: list[Json]) -> list[Json]:
    """What a kustomization or component makes of the objects so far (kustomize's `AccumulateTarget`)."""
    where = next((directory / name for name in _FILES if (directory / name).is_file()), None)
    if where is None:
        raise ManifestsError(f"{directory}: there is no kustomization.yaml")
    [own] = _documents(where)
    _only(own, _FIELDS, where)
    objects = copy.deepcopy(below)
    for name in own.get("resources") or ():
        path = directory / name
        objects += _kustomization(path, []) if path.is_dir() else _documents(path)
    for name in own.get("components") or ():
        objects = _kustomization(directory / name, objects)
    objects += [_config_map(generator, directory, where) for generator in own.get("configMapGenerator") or ()]
    for patch in own.get("patches") or ():
        _patch(objects, patch, where)
    if own.get("namespace"):
        for obj in objects:
            if obj["kind"] not in _CLUSTER_WIDE:
                obj["metadata"]["namespace"] = own["namespace"]
    for labels in own.get("labels") or ():
        _only(labels, ("pairs", "includeTemplates"), where)
        for obj in objects:
            for holder in [obj, *(_templates(obj) if labels.get("includeTemplates") else ())]:
                metadata = holder.setdefault("metadata", {})
                metadata["labels"] = {**(metadata.get("labels") or {}), **labels["pairs"]}
    for image in own.get("images") or ():
        _only(image, ("name", "newName", "newTag", "digest"), where)
        _set_image(objects, image)
    return objects


def _documents(path: Path) -> list[Json]:
    try:
        documents = [document for document in YAML(typ="safe", pure=True).load_all(path) if document is not None]
    except (OSError, YAMLError) as error:
        raise ManifestsError(f"{path}: {error}") from error
    for document in documents:
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise ManifestsError(f"{path}: not a Kubernetes object: `kind` is missing")
    return documents


def _config_map(entry: Json, directory: Path, where: Path) -> Json:
    """A ConfigMap of files."""
    _only(entry, ("name", "namespace", "files", "options"), where)
    options = entry.get("options") or {}
    _only(options, ("disableNameSuffixHash", "labels", "annotations"), where)
    if not options.get("disableNameSuffixHash"):
        raise ManifestsError(f"{where}: configMapGenerator {entry.get('name')} needs disableNameSuffixHash: true here")
    data = {}
    for item in entry.get("files") or ():
        key, equals, path = item.partition("=")
        file = directory / (path if equals else item)
        try:
            data[key if equals else file.name] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ManifestsError(f"{where}: {file}: {error}") from error
    metadata: Json = {"name": entry["name"]}
    metadata |= {"namespace": entry["namespace"]} if "namespace" in entry else {}
    metadata |= {key: dict(options[key]) for key in ("labels", "annotations") if options.get(key)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _patch(objects: list[Json], entry: Json, where: Path) -> None:
    """Apply a patch to what it is aimed at: JSON Patch operations, or `$patch: delete`."""
    _only(entry, ("target", "patch"), where)
    try:
        patch = YAML(typ="safe", pure=True).load(entry["patch"])
    except (KeyError, YAMLError) as error:
        raise ManifestsError(f"{where}: a patch cannot be read: {error}") from error
    target = entry.get("target")
    if target is None and isinstance(patch, dict):
        target = {"kind": patch.get("kind"), "name": (patch.get("metadata") or {}).get("name")}
    _only(target or {}, ("kind", "name", "annotationSelector"), where)
    # One annotation with its value, which other components may have changed: then the patch is for nobody
    annotation, _, value = (target or {}).get("annotationSelector", "").partition("=")
    aimed = [
        obj
        for obj in objects
        if target
        and target.get("kind") in (None, obj["kind"])
        and target.get("name") in (None, obj["metadata"]["name"])
        and (not annotation or (obj["metadata"].get("annotations") or {}).get(annotation) == value)
    ]
    if not aimed and not annotation:
        raise ManifestsError(f"{where}: a patch is for {target}, and there is no such object")
    if isinstance(patch, dict) and patch.get("$patch") == "delete":
        objects[:] = [obj for obj in objects if all(obj is not deleted for deleted in aimed)]
        return
    if not isinstance(patch, list):
        raise ManifestsError(
            f"{where}: giveway install knows JSON patches and $patch: delete, and no merges; {_INSTEAD}"
        )
    for obj in aimed:
        try:
            changed = apply_json_patch(obj, patch)
        except JsonPatchError as error:
            raise ManifestsError(f"{where}: patch for {obj['kind']} {obj['metadata']['name']}: {error}") from error
        obj.clear()
        obj.update(changed)


def _set_image(objects: Iterable[Json], entry: Json) -> None:
    """Give the images of the entry's name its new name, and its tag or digest."""
    for obj in objects:
        for template in _templates(obj):
            spec = template.get("spec") or {}
            for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
                name, tag, digest = _image_parts(container.get("image", ""))
                if name != entry["name"]:
                    continue
                if "newTag" in entry or "digest" in entry:
                    tag, digest = entry.get("newTag", ""), entry.get("digest", "")
                name = str(entry.get("newName", name))
                container["image"] = name + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")


def _image_parts(image: str) -> tuple[str, str, str]:
    """Name, tag and digest; a port of the registry is part of the name."""
    name, _, digest = image.partition("@")
    head, colon, tag = name.rpartition(":")
    return (name, "", digest) if not colon or "/" in tag else (head, tag, digest)


def _templates(obj: Json) -> Iterable[Json]:
    """The pod templates in an object."""
    for path in TEMPLATE_PATHS:
        part: Any = obj
        for key in path:
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict) and isinstance(part.get("spec"), dict) and "containers" in part["spec"]:
            yield part


def _only(kustomization: Json, known: Collection[str], where: Path) -> None:
    unknown = sorted(set(kustomization).difference(known))
    if unknown:
        known_not = ", ".join(map(repr, unknown))
        raise ManifestsError(f"{where}: giveway install does not know {known_not} of kustomize; {_INSTEAD}")
