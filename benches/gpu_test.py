"""What `gpu_run.py` makes of failures, with a program in odec's place that fails where it is told: python3 benches/gpu_test.py

One kind of code that works hides nothing of another, a hang costs its limit and no more, and what comes back is small enough and holds what
is needed to find the fault.
"""

import contextlib
import io
import json
import os
import re
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

import evidence
import gpu
import gpu_run

KERNEL = "contract_0123456789abcdef"
PTX = f".version 8.0\n.visible .entry rows_fedcba9876543210(\n)\n{{\n ret;\n}}\n.visible .entry {KERNEL}(\n)\n{{\n wgmma;\n}}\n"
# In odec's place: it does what the file `told` beside it says of a command and an artifact.
ODEC = f'''#!/usr/bin/env python3
import json, os, sys, time
from pathlib import Path
told = json.loads(Path(__file__).with_name("told").read_text())
line = " ".join(sys.argv[1:])
for part, what in told.items():
    if all(word in line for word in part.split()):
        if what == "hang":
            if "ODEC_LAUNCH_LOG" in os.environ:
                print("begins kernel rows at grad step.0\\nbegins kernel {KERNEL} at grad step.1", file=sys.stderr, flush=True)
            time.sleep(100)
        if what == "fail":
            sys.exit("error: the driver refuses; refused was kernel {KERNEL} at grad step.0")
        if what == "wrong":
            dump = Path(sys.argv[sys.argv.index("--dump") + 1])
            dump.mkdir()
            for n in range(5):
                (dump / f"operand.{{n}}.bin").write_bytes(os.urandom(13 << 20))
            wrong = dict(site="grad step.0", kernel="{KERNEL}", dims=[1, 2, 3], operand=2)
            print(json.dumps(dict(computed=True, good=False, launches=9, bounded=3, worst=7.0, failed=1, wrong=[wrong])))
            sys.exit(1)
if sys.argv[1] == "train":
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    out.mkdir(parents=True)
    steps = int(sys.argv[sys.argv.index("--steps") + 1])
    (out / "metrics.jsonl").write_text("".join(json.dumps(dict(loss=1.5)) + "\\n" for _ in range(steps)))
if sys.argv[1] == "export":
    Path(sys.argv[sys.argv.index("-o") + 1]).write_text("parameters")
if sys.argv[1] == "compare":
    print(json.dumps(dict(computed=True, good=True, results=[], launches=9, bounded=3, worst=0.5, failed=0, wrong=[])))
if sys.argv[1] == "bench":
    print(json.dumps(dict(step_ms_median=1.0, planned_bytes=1, token_ms_median=0.5)))
if sys.argv[1] == "replay":
    print("9 launches, as expected")
if sys.argv[1] == "profile":
    print(json.dumps(dict(kernels=[])))
'''


class Rehearsal(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder, self.out = Path(scratch.name) / "kit", Path(scratch.name) / "out"
        targets = ["sm_80", "sm_90a"]
        self.folder.mkdir()
        (self.folder / "odec").write_text(ODEC)
        (self.folder / "odec").chmod(0o755)
        (self.folder / "text.txt").write_text("text")
        (self.folder / "launches" / "rows-sm_80").mkdir(parents=True)

        def case(label: str, **more: object) -> dict[str, object]:
            artifacts = {target: f"artifacts/{label}.{target}.odex" for target in targets}
            for place in artifacts.values():
                (self.folder / place).mkdir(parents=True)
                (self.folder / place / "kernels.ptx").write_text(PTX)
            return {"label": label, "system": "prenorm", "precision": "bf16", "revolve": False, "artifacts": artifacts} | more

        shape = {"batch": 1, "context": 8}
        plan = {
            "prepared": "now",
            "odec": "odec",
            "targets": targets,
            "steps": 3,
            "ops": ["add"],
            "conformance": [case("prenorm-bf16", losses=[1.5] * 3)],
            "launches": [case("prenorm-bf16-512")],
            "speed": [case("prenorm-55M", rival="prenorm", size="55M", shape=shape, parameters=5, flops_per_token=1, needed_bytes=1)],
        }
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def run_all(self, told: dict[str, str], *arguments: str) -> tuple[int, str]:
        """Exit code, and what was printed."""
        (self.folder / "told").write_text(json.dumps(told))
        said = io.StringIO()
        # A device that computes, without a card.
        words = ["run", str(self.folder), str(self.out), "--device", "cpu", "--limit", "2", *arguments]
        with contextlib.redirect_stdout(said):
            code = gpu_run.run(gpu.parser().parse_args(words))
        return code, said.getvalue()

    def packed(self) -> dict[str, bytes]:
        """All that is in the volumes, which are as many and as large as may come back."""
        files = list(self.out.rglob("*"))
        self.assertLessEqual(len(files), 8)
        self.assertTrue(all(file.stat().st_size <= 16 << 20 for file in files))
        found = {}
        for path in sorted(self.out.glob("failures-*.zip")):
            with zipfile.ZipFile(path) as volume:
                self.assertIsNone(volume.testzip())
                found |= {name: volume.read(name) for name in volume.namelist()}
        return found

    def test_all_is_well(self) -> None:
        code, said = self.run_all({})
        self.assertEqual(code, 0, said)
        for target in ("sm_80", "sm_90a"):
            for phase in gpu_run.PHASES:
                self.assertRegex(said, rf"(?m)^{target}  {phase} +1 of 1 good$")
        self.assertEqual(self.packed(), {})

    def test_a_kind_of_code_that_works_hides_nothing_of_another(self) -> None:
        code, said = self.run_all({"sm_90a": "fail"})
        self.assertEqual(code, 1)
        for phase in gpu_run.PHASES:
            self.assertRegex(said, rf"(?m)^sm_80  {phase} +1 of 1 good$")
            # Launches of single kernels of the older code are refused by nobody.
            failed = "1 of 1 good" if phase == "kernels" else "0 of 1 good; FAILED"
            self.assertRegex(said, rf"(?m)^sm_90a  {phase} +{failed}")
        kept = self.packed()
        self.assertTrue(any(name.endswith("stderr.txt") and b"the driver refuses" in data for name, data in kept.items()))
        kernels = [data for name, data in kept.items() if name.endswith(f"kernels/{KERNEL}.ptx")]
        self.assertTrue(kernels and all(b"wgmma" in data and b"rows_" not in data for data in kernels))

    def test_a_hang_costs_its_limit(self) -> None:
        began = time.monotonic()
        code, said = self.run_all({"compare sm_80": "hang"}, "--phase", "launches")
        self.assertEqual(code, 1)
        self.assertLess(time.monotonic() - began, 20)
        self.assertIn(f"stopped after 2 s; the last launch to begin was kernel {KERNEL} at grad step.1", said)
        self.assertRegex(said, r"(?m)^sm_90a  launches +1 of 1 good$")
        self.assertNotIn("smoke", re.sub(r"\*\*.*?\*\*", "", said))

    def test_what_does_not_begin_is_named(self) -> None:
        code, said = self.run_all({}, "--budget", "1")
        self.assertEqual(code, 1)
        self.assertIn("out of time", said)

    def test_operands_come_back_as_far_as_there_is_room(self) -> None:
        code, said = self.run_all({"compare --launches": "wrong"}, "--phase", "launches")
        self.assertEqual(code, 1)
        self.assertIn(f"kernel {KERNEL} [1, 2, 3], operand 2", said)
        kept = self.packed()
        dumps = [len(data) for name, data in kept.items() if "/dump/" in name]
        self.assertEqual((len(dumps), set(dumps)), (evidence.VOLUMES, {evidence.LONGEST}))
        results = json.loads((self.out / "results.json").read_text())
        self.assertEqual(results["left_out"], 2 * 5 - evidence.VOLUMES)


if __name__ == "__main__":
    os.environ.pop("ODEC_CUBIN", None)
    unittest.main()
