"""The disk image for macOS: the application, signed, in a .dmg that Apple has notarised.

NOT RUN YET: written on Linux, by the documentation; a test checks the commands.
https://developer.apple.com/documentation/security/customizing-the-notarization-workflow
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from tests.release.plan import Release, run

__all__ = ["make_dmg"]

_AD_HOC = "-"


def make_dmg(release: Release) -> Path:
    """The disk image of a release; without a signer it only starts on the Mac that made it, or after the user
    has allowed it. Raises PackagingError.
    """
    _show_licences(release)
    # PyInstaller has signed the parts; what was added since is sealed by the outer signature.
    hardened = ["--options", "runtime", "--timestamp"] if release.signer else []
    entitled = ["--entitlements", Path(__file__).with_name("entitlements.plist")]
    sign = ["codesign", "--force", "--sign", release.signer or _AD_HOC, *hardened]
    run([*sign, *entitled, release.program])
    run(["codesign", "--verify", "--deep", "--strict", release.program])
    staged = release.work / "dmg"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    shutil.copytree(release.program, staged / release.program.name, symlinks=True)
    (staged / "Applications").symlink_to("/Applications")
    made = release.out / f"{release.name}-macos-{platform.machine()}.dmg"
    image = ["-volname", "Inglenook", "-srcfolder", staged, "-format", "ULFO", "-ov", made]
    run(["hdiutil", "create", *image])
    shutil.rmtree(staged)
    if release.signer:
        run(["codesign", "--force", "--sign", release.signer, "--timestamp", made])
    if release.notary:
        run(["xcrun", "notarytool", "submit", made, "--keychain-profile", release.notary, "--wait"])
        run(["xcrun", "stapler", "staple", made])
        opened = ["--type", "open", "--context", "context:primary-signature"]
        run(["spctl", "--assess", *opened, "--verbose", made])
    return made


def _show_licences(release: Release) -> None:
    """Put the licences where PyInstaller's programs look for data, as its own data files are."""
    link = release.program / "Contents" / "Frameworks" / "licences"
    if not link.is_symlink():
        link.symlink_to("../Resources/licences")
