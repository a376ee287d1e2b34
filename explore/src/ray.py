"""Runs trials as Ray tasks, for `odec explore --engine ray`. It is given commands and says what came of them: what a trial is it does not know.

Each line of standard input and standard output is a JSON object.

    in   {"address": null, "environment": {…}}   once: null is what `RAY_ADDRESS` says, a cluster of this machine, or a new one
    out  {"ready": {…}}                          what the cluster has; or {"missing": why} or {"failed": why}, and the end
    in   {"task": 3, "command": […], "folder": …, "request": …, "cpus": 1, "gpus": 0, "memory": 0, "retries": 3}
    out  {"task": 3, "said": …}                  what the command printed; or {"task": 3, "failed": why}
    in   {"stop": true}                          tasks are cancelled; so they are at the end of the input
    out  {"task": 3, "stopped": true}

The standard input of a command holds its request, and stays open while its worker lives: at its end a trial saves its run and stops. So a worker that
is killed leaves nothing behind that goes on, and Ray runs the task again elsewhere, up to `retries` times."""

import json
import os
import queue
import sys
import threading

# Ray and what it starts may print; only this program's lines go to odec.
OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def say(**line):
    OUT.write(json.dumps(line) + "\n")
    OUT.flush()


def carry_out(command, folder, request, environment):
    """The task: runs a command on the worker's machine and returns what it printed."""
    import os
    import subprocess
    import tempfile
    import time

    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as wrong:
        known = {**os.environ, **environment}
        child = subprocess.Popen(command, cwd=folder, env=known, stdin=subprocess.PIPE, stdout=printed, stderr=wrong)
        try:
            child.stdin.write(request.encode() + b"\n")
            child.stdin.flush()
            # Ray cancels by an exception in this thread, which a wait in the system would not see.
            while child.poll() is None:
                time.sleep(0.05)
        except BrokenPipeError:
            child.wait()
        finally:
            try:
                child.stdin.close()
            except BrokenPipeError:
                pass
            child.wait()
        if child.returncode < 0:
            # Killed from outside, for memory perhaps: as good as a lost worker.
            raise ChildProcessError(f"the trial was killed by signal {-child.returncode}")
        if child.returncode > 0:
            wrong.seek(max(0, wrong.seek(0, os.SEEK_END) - 4000))
            said = wrong.read().decode(errors="replace").strip()
            raise RuntimeError(said or f"the trial ended with {child.returncode}")
        printed.seek(0)
        return printed.read().decode()


def cluster(ray):
    """What there is: cores and GPUs of all machines, and the most that one of them has."""
    machines = [n["Resources"] for n in ray.nodes() if n["Alive"]]
    of = lambda what: [m.get(what, 0) for m in machines] or [0]
    return {
        "machines": len(machines),
        "cpus": int(sum(of("CPU"))),
        "cpus_of_one": int(max(of("CPU"))),
        "gpus": int(sum(of("GPU"))),
        "memory_of_one": int(max(of("memory"))),
    }


def why(error):
    return str(error).strip().rstrip(".") or type(error).__name__


def authenticate():
    """Shows a cluster elsewhere the token that this user has, as Ray does by itself only where it begins or joins one."""
    token = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")
    if "RAY_AUTH_TOKEN" in os.environ or os.path.isfile(token):
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def main():
    first = json.loads(sys.stdin.readline() or "null")
    if first is None:
        return
    # Ray reads it when it is imported.
    if (first["address"] or os.environ.get("RAY_ADDRESS") or "").startswith("ray://"):
        authenticate()
    try:
        import ray
    except ImportError as error:
        say(missing=why(error))
        return
    try:
        address = first["address"]
        if address is None:
            ray.init(log_to_driver=False)
        else:
            ray.init(address=address)
        say(ready=cluster(ray))
    # Whatever Ray says is what the user needs to know.
    except Exception as error:
        say(failed=why(error))
        return
    remote = ray.remote(carry_out)
    asked = queue.Queue()

    def listen():
        for line in sys.stdin:
            asked.put(json.loads(line))
        asked.put(None)

    threading.Thread(target=listen, daemon=True).start()
    under_way, stopping, ended = {}, False, False
    while not (ended and not under_way):
        try:
            line = asked.get(timeout=0.02 if under_way else 0.5)
        except queue.Empty:
            line = {}
        if line is None or "stop" in line:
            stopping, ended = True, ended or line is None
            for ref in under_way:
                ray.cancel(ref, force=False)
        elif "task" in line:
            options = {"num_cpus": line["cpus"], "num_gpus": line["gpus"], "max_retries": line["retries"]}
            options["retry_exceptions"] = [ChildProcessError]
            if line["memory"] > 0:
                options["memory"] = line["memory"]
            ref = remote.options(**options).remote(line["command"], line["folder"], line["request"], first["environment"])
            under_way[ref] = line["task"]
        if not under_way:
            continue
        done, _ = ray.wait(list(under_way), num_returns=1, timeout=0.05)
        for ref in done:
            task = under_way.pop(ref)
            try:
                say(task=task, said=ray.get(ref))
            except Exception as error:
                if stopping:
                    say(task=task, stopped=True)
                else:
                    # Of an exception in the task, the exception itself: not where in this file it was.
                    say(task=task, failed=why(getattr(error, "cause", None) or error))
    ray.shutdown()


main()
