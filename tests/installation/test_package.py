"""The installed package holds the manifests, so that `giveway install` works without a checkout."""

import shutil
import subprocess
import sys
import zipfile

from tests.manifests.objects import ROOT

PARTS = ("webhook", "certs", "manifests", "policies", "setup.py", "pyproject.toml", "README.md", "LICENSE")
DATA = "giveway-0.1.0.data/data/share/giveway/"


def test_the_wheel_holds_manifests_and_policies(tmp_path):
    """Every file of the base, of every component and of the shipped policies, as it is in the checkout."""
    source = tmp_path / "source"
    source.mkdir()
    for part in PARTS:
        path = ROOT / part
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, source / part)
    arguments = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path))
    subprocess.run([sys.executable, "-m", "pip", *arguments, str(source)], check=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        held = {name.removeprefix(DATA): found.read(name) for name in found.namelist() if name.startswith(DATA)}
    folders = ("manifests/base", "manifests/components", "policies")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert held == {str(path.relative_to(ROOT)): path.read_bytes() for path in files}
