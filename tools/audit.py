"""Known faults of what is installed, by pip-audit. Says what could not be asked about; exits with 1 if a fault is known
that a newer version mends.

On a machine that cannot ask the index of Python packages nothing is found out, and that is no fault.
"""

import json
import subprocess
import sys

COMMAND = ("-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner", "off", "--format", "json")


def main() -> int:
    asked = subprocess.run([sys.executable, *COMMAND], capture_output=True, text=True)
    try:
        found = json.loads(asked.stdout)["dependencies"]
    except ValueError:
        print("pip-audit could not ask about anything:", *asked.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return 0
    faults = [(one, fault) for one in found for fault in one.get("vulns", ())]
    for one, fault in faults:
        remedy = ", ".join(fault["fix_versions"]) or "no version yet"
        print(f"{one['name']} {one['version']}: {fault['id']}, mended in {remedy}", file=sys.stderr)
    skipped = sum("skip_reason" in one for one in found)
    print(f"{len(found) - skipped} packages audited, {len(faults)} known faults, {skipped} could not be asked about")
    return int(any(fault["fix_versions"] for _, fault in faults))


if __name__ == "__main__":
    sys.exit(main())
