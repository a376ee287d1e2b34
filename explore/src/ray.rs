//! Trials as Ray tasks, on the machines of a cluster that share the exploration's folder.
//!
//! Takes what is left to do; asks a Python program (`ray.py`) for it, a child process that speaks lines of JSON. Each task is `odec __trial` on a machine with free cores,
//! GPUs and memory. A task whose worker is lost is run again by Ray, and goes on from its run's checkpoint. What is promoted and kept is decided here, as
//! where trials run in this process.

use crate::display::{Display, started, watch};
use crate::folder::Outcome;
use crate::ladder::{Next, Task};
use crate::plan::Plan;
use crate::share::{larger, share};
use crate::work::Work;
use odec_driver::fail::{Done, Failure};
use odec_driver::source::Parsed;
use odec_runtime::{DeviceChoice, Shown};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const DRIVER: &str = include_str!("ray.py");
/// What names the Python that has Ray.
pub const PYTHON: &str = "ODEC_PYTHON";
/// Where the driver's own messages are kept, in the folder of the exploration.
pub const LOG: &str = "ray.log";
/// Seconds that a trial waits for a worker that was lost to let go of its run.
const LET_GO: f64 = 120.0;

/// A line of the driver.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    ready: Option<Cluster>,
    missing: Option<String>,
    failed: Option<String>,
    task: Option<usize>,
    said: Option<String>,
    stopped: bool,
}

/// What there is.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Cluster {
    machines: usize,
    cpus: usize,
    cpus_of_one: usize,
    gpus: usize,
    memory_of_one: u64,
}

/// What `odec __trial` prints.
#[derive(Deserialize)]
pub struct Said {
    /// `None`: it was stopped before.
    pub outcome: Option<Outcome>,
}

/// The driver, which ends with its input.
struct Driver {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Result<Line, String>>,
    log: PathBuf,
    /// Whether there may be tasks under way.
    is_ready: bool,
}

impl Driver {
    fn start(python: &str, log: PathBuf) -> Done<Driver> {
        let cannot = |e: std::io::Error| Failure::Input(format!("{}: {e}", log.shown()));
        let file = File::create(&log).map_err(cannot)?;
        let mut command = Command::new(python);
        command.args(["-c", DRIVER]).stderr(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is odec's: the driver hears of it when tasks are to be saved.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|e| no_python(python, &e))?;
        let (to, out) = (child.stdin.take(), child.stdout.take());
        let (send, from) = channel();
        let out = out.ok_or_else(|| Failure::internal("a child without an output"))?;
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let read = line.map_err(|e| e.to_string()).and_then(|line| {
                    serde_json::from_str(&line).map_err(|e| format!("{e} in `{line}`"))
                });
                if send.send(read).is_err() {
                    break;
                }
            }
        });
        Ok(Driver {
            child,
            to,
            from,
            log,
            is_ready: false,
        })
    }

    fn tell(&mut self, line: &Json) -> Done {
        let written = self
            .to
            .as_mut()
            .map(|to| writeln!(to, "{line}").and_then(|()| to.flush()));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    /// The next line; `None`: not yet.
    fn hear(&mut self) -> Done<Option<Line>> {
        match self.from.recv_timeout(Duration::from_millis(50)) {
            Ok(Ok(line)) => Ok(Some(line)),
            Ok(Err(e)) => Err(Failure::Input(format!(
                "Ray's driver said something else than a line of JSON: {e}"
            ))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    fn gone(&mut self) -> Failure {
        let how = self
            .child
            .wait()
            .map_or_else(|e| e.to_string(), |s| s.to_string());
        Failure::Input(format!(
            "Ray's driver ended ({how}); what it said is in {}. Trials are saved, and the same command goes on with them",
            self.log.shown()
        ))
    }
}

impl Drop for Driver {
    /// The end of its input stops what is under way.
    fn drop(&mut self) {
        drop(self.to.take());
        if !self.is_ready {
            let _ = self.child.kill();
        }
        // It ends by itself; how, is of no interest any more.
        let _ = self.child.wait();
    }
}

fn no_python(python: &str, e: &std::io::Error) -> Failure {
    let why = match e.kind() {
        ErrorKind::NotFound => "there is no such program".to_string(),
        _ => e.to_string(),
    };
    Failure::Input(format!(
        "cannot start Python as `{python}`: {why}. `--engine ray` needs Python with Ray, as of `python3 -m venv .venv-ray && .venv-ray/bin/pip install 'ray[client]'`; \
         name it by `{PYTHON}=.venv-ray/bin/python`. Without Python: `--engine local`"
    ))
}

/// What a cluster is asked for to run a trial.
struct Asked<'a> {
    program: PathBuf,
    folder: PathBuf,
    device: &'a str,
    gpus: u64,
    threads: usize,
    retries: u32,
}

/// Runs what is left as tasks of the cluster at an address, or of the one that Ray finds or starts.
///
/// # Errors
/// When Python or Ray is not there, the cluster has too little, a trial cannot be trained, or its worker was lost more often than `retries`.
pub fn run(work: &Work, base: &Parsed, address: Option<&str>, retries: u32) -> Done {
    let (device, gpus) = match work.o.device {
        DeviceChoice::Cpu => ("cpu", 0),
        DeviceChoice::Reference => ("reference", 0),
        // Ray chooses which; a task sees no others.
        DeviceChoice::Cuda(_) => ("cuda:0", 1),
        DeviceChoice::Dry { .. } => {
            let message = "a device that computes nothing trains no trials; leave `--device` out";
            return Err(Failure::Input(message.into()));
        }
    };
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
    let mut driver = Driver::start(&python, work.folder.path().join(LOG))?;
    driver.tell(&json!({ "address": address, "environment": environment() }))?;
    let cluster = ready(work, &mut driver, &python)?;
    let Some(cluster) = cluster else {
        return Ok(());
    };
    driver.is_ready = true;
    fits(work.plan, base, &cluster, gpus)?;
    let at_once = match gpus {
        0 => cluster.cpus,
        _ => cluster.gpus.min(cluster.cpus),
    };
    let share = share(at_once, work.left().max(1), usize::MAX, work.o.jobs);
    let threads = match gpus {
        0 => share.threads.min(cluster.cpus_of_one).max(1),
        _ => 1,
    };
    let machines = match cluster.machines {
        1 => "one machine".to_string(),
        n => format!("{n} machines"),
    };
    started(
        work,
        share.jobs,
        threads,
        &format!(", by Ray on {machines}"),
    );
    let absolute = |path: &Path| std::path::absolute(path).map_err(Failure::input);
    let asked = Asked {
        program: std::env::current_exe().map_err(Failure::internal)?,
        folder: absolute(Path::new("."))?,
        device,
        gpus,
        threads,
        retries,
    };
    let mut free: Vec<usize> = (0..share.jobs).rev().collect();
    let mut under_way: BTreeMap<usize, Task> = BTreeMap::new();
    let mut display = Display::new(work, share.jobs);
    let mut told = false;
    loop {
        watch(work, &mut display);
        let halt = work.halt.load(Ordering::Relaxed);
        if halt && !told {
            driver.tell(&json!({ "stop": true }))?;
            told = true;
        }
        let mut nothing = halt;
        while !halt && let Some(worker) = free.pop() {
            let next = work.next(worker)?;
            let Next::Task(task) = next else {
                free.push(worker);
                nothing = next == Next::Nothing;
                break;
            };
            let line = submission(work, &asked, worker, task, absolute)?;
            driver.tell(&line)?;
            under_way.insert(worker, task);
        }
        if under_way.is_empty() && nothing {
            break;
        }
        if let Some(line) = driver.hear()?
            && let Some((worker, task)) = line.task.and_then(|w| under_way.remove_entry(&w))
        {
            free.push(worker);
            ended(work, worker, task, line)?;
        }
    }
    display.finish(work);
    Ok(())
}

/// What the cluster has; `None`: odec was asked to stop before it was there.
fn ready(work: &Work, driver: &mut Driver, python: &str) -> Done<Option<Cluster>> {
    loop {
        if work.o.stop.load(Ordering::Relaxed) {
            work.halt.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let Some(line) = driver.hear()? else { continue };
        if let Some(why) = line.missing {
            return Err(Failure::Input(format!(
                "{python} has no Ray ({why}); install it by `{python} -m pip install 'ray[client]'`, or name a Python that has it by `{PYTHON}`. \
                 Without Ray: `--engine local`"
            )));
        }
        if let Some(why) = line.failed {
            return Err(Failure::Input(format!(
                "Ray cannot be reached: {why}. Its address is said by `--engine ray://HOST:10001`, or by `RAY_ADDRESS`; a cluster is begun by `ray start --head`"
            )));
        }
        if line.ready.is_some() {
            return Ok(line.ready);
        }
    }
}

/// Whether the cluster can ever run each trial: Ray would wait for ever.
fn fits(plan: &Plan, base: &Parsed, cluster: &Cluster, gpus: u64) -> Done {
    if gpus > 0 && cluster.gpus == 0 {
        let message = "no machine of the cluster has a GPU; leave `--device` out, or add one by `ray start --num-gpus 1`";
        return Err(Failure::Input(message.into()));
    }
    if cluster.cpus == 0 {
        let message =
            "no machine of the cluster has a core for tasks; add one by `ray start --num-cpus 4`";
        return Err(Failure::Input(message.into()));
    }
    match gpus {
        0 => larger(plan, base, cluster.memory_of_one),
        _ => Ok(()),
    }
}

/// What of this process's environment a trial must have, too.
fn environment() -> BTreeMap<String, String> {
    let kept = |name: &str| name.starts_with("ODEC_") || name == "XDG_CACHE_HOME";
    // What is no text is none of odec's.
    let all = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    all.filter(|(name, _)| kept(name)).collect()
}

fn submission(
    work: &Work,
    asked: &Asked,
    worker: usize,
    task: Task,
    absolute: impl Fn(&Path) -> Done<PathBuf>,
) -> Done<Json> {
    let mut request = work.request(task, asked.threads)?;
    request.file = absolute(&request.file)?;
    request.run = absolute(&request.run)?;
    request.let_go = LET_GO;
    let request = serde_json::to_string(&request).map_err(Failure::internal)?;
    let program = asked.program.to_str();
    let program = program.ok_or_else(|| Failure::internal("a path that is no text"))?;
    let memory = match asked.gpus {
        0 => {
            work.plan.models[work.plan.trials[task.trial].model]
                .examined
                .memory
        }
        _ => 0,
    };
    Ok(json!({
        "task": worker, "command": [program, "__trial", "--device", asked.device], "folder": asked.folder, "request": request,
        "cpus": asked.threads, "gpus": asked.gpus, "memory": memory, "retries": asked.retries,
    }))
}

/// Keeps what came of a task.
fn ended(work: &Work, worker: usize, task: Task, line: Line) -> Done {
    let outcome = match (line.said, line.failed) {
        (Some(said), _) => {
            let said: Result<Said, _> = serde_json::from_str(&said);
            said.map_err(|e| Failure::internal(format!("a trial says {e}")))?
                .outcome
        }
        (None, Some(why)) => {
            work.refuse(Failure::Input(format!("{}: {why}", work.name(task.trial))));
            None
        }
        (None, None) if line.stopped => None,
        (None, None) => return Err(Failure::internal("a task ended with nothing")),
    };
    work.ended(worker, task, outcome)
}
