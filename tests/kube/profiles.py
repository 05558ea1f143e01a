"""What of a Kubernetes version is switched on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is switched on beyond the version's defaults: feature gates and API group versions."""

    name: str
    gates: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()

    def flags(self) -> tuple[str, ...]:
        """Flags of kube-apiserver; the other components know only those of the gates."""
        versions = ",".join(f"{version}=true" for version in self.api_versions)
        return (*self.gate_flags(), *((f"--runtime-config={versions}",) if versions else ()))

    def gate_flags(self) -> tuple[str, ...]:
        gates = ",".join(f"{gate}=true" for gate in self.gates)
        return (f"--feature-gates={gates}",) if gates else ()


DEFAULT = Profile(name="default")
GATES = Profile(
    name="gates",
    gates=(
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAPartitionableDevices",
    ),
    # 1.34's scheduler with DRADeviceTaints waits for DeviceTaintRule of this version.
    api_versions=("resource.k8s.io/v1alpha3",),
)
PROFILES = {profile.name: profile for profile in (DEFAULT, GATES)}

_ON_BY_DEFAULT_FROM_MINOR = 36


def effective(profile: Profile, version: str) -> Profile:
    """Give what a profile amounts to in that version: from 1.36 on, its gates are the default."""
    minor = int(version.split(".")[1])
    return DEFAULT if profile == GATES and minor >= _ON_BY_DEFAULT_FROM_MINOR else profile
