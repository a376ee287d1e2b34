//! Compiles many kernels to objects: on several threads, through the cache, and in a child process, so that an abort or an endless loop
//! inside LLVM becomes an error that names the kernel.
//!
//! [`compile`] works in this process. [`compile_in_child`] asks a child, which runs [`serve`]: the
//! request and the answer are JSON (objects follow the answer's line as they are), each kernel's
//! beginning and end are lines of the child's standard error. The streams are files without a name, so the parent needs no
//! threads, and neither side waits for the other to read.

use crate::cache::Cache;
use crate::error::CodegenError;
use crate::object::Object;
use crate::pipeline::Pipeline;
use crate::validate;
use odec_program::{Kernel, Target};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long the child may work without beginning or ending a kernel. The slowest kernels of the library take seconds; a machine
/// that is a hundred times as busy still is in time.
const PATIENCE: Duration = Duration::from_secs(600);
/// What a child exits with when [`serve`] cannot write its answer; why, it says on standard error.
pub const CANNOT_WRITE: i32 = 74;
/// How often the parent looks.
const LOOK: Duration = Duration::from_millis(5);

/// Compiles kernels for a target, in this process; the objects are in the kernels' order.
///
/// # Errors
/// That of the first kernel which fails, in the kernels' order.
pub fn compile(
    kernels: &[Kernel],
    target: Target,
    cache: Option<&Cache>,
) -> Result<Vec<Object>, CodegenError> {
    compile_with(kernels, target, cache, &|_, _| ())
}

/// Where a kernel's compilation is, as told on standard error.
#[derive(Clone, Copy)]
enum Progress {
    Begin,
    End,
}

impl Progress {
    fn prefix(self) -> &'static str {
        match self {
            Progress::Begin => "odec-codegen begin ",
            Progress::End => "odec-codegen end ",
        }
    }
}

fn compile_with(
    kernels: &[Kernel],
    target: Target,
    cache: Option<&Cache>,
    progress: &(dyn Fn(Progress, &str) + Sync),
) -> Result<Vec<Object>, CodegenError> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        let mut pipeline = None; // made for the first kernel that is not in the cache
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(kernel) = kernels.get(n) else { break };
            progress(Progress::Begin, &kernel.symbol);
            let result = one(kernel, target, cache, &mut pipeline);
            progress(Progress::End, &kernel.symbol);
            done.lock()
                .expect("no thread panics while it holds the lock")
                .push((n, result));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    on_threads(cores.min(kernels.len()), None, &work);
    let mut done = done
        .into_inner()
        .expect("no thread panics while it holds the lock");
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs `work` here and on further threads, up to `threads`; on fewer where the system has no more.
pub fn on_threads(threads: usize, stack: Option<usize>, work: &(dyn Fn() + Sync)) {
    std::thread::scope(|s| {
        for _ in 1..threads {
            let new = std::thread::Builder::new();
            let new = match stack {
                Some(bytes) => new.stack_size(bytes),
                None => new,
            };
            if new.spawn_scoped(s, work).is_err() {
                break;
            }
        }
        work();
    });
}

fn one(
    kernel: &Kernel,
    target: Target,
    cache: Option<&Cache>,
    pipeline: &mut Option<Pipeline>,
) -> Result<Object, CodegenError> {
    let text = crate::mlir_text(kernel, target)?;
    if let Some(bytes) = cache.and_then(|c| c.get(&text, target)) {
        return Object::new(&kernel.symbol, target, bytes);
    }
    let bytes = pipeline
        .get_or_insert_with(Pipeline::new)
        .object(&text, target)
        .map_err(|message| CodegenError::Lower {
            symbol: kernel.symbol.clone(),
            message,
        })?;
    let object = Object::new(&kernel.symbol, target, bytes)?;
    if let Some(cache) = cache {
        cache.put(&text, target, &object.bytes);
    }
    Ok(object)
}

#[derive(Serialize, Deserialize)]
struct Request {
    target: Target,
    kernels: Vec<Kernel>,
}

/// The first line of an answer; the objects follow in order.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// Symbol and number of bytes of each object.
    Objects(Vec<(String, usize)>),
    Failed {
        symbol: String,
        message: String,
    },
}

/// The child's side: reads one request, compiles what the cache does not have, writes one answer. Progress lines go to `log`.
///
/// # Errors
/// Input that is no request, or output that cannot be written. A kernel that fails is an answer.
pub fn serve(
    mut input: impl Read,
    mut output: impl Write,
    log: impl Write + Send,
    cache: Option<&Cache>,
) -> io::Result<()> {
    let mut text = String::new();
    input.read_to_string(&mut text)?;
    let request: Request = serde_json::from_str(&text)?;
    let log = Mutex::new(log);
    let result = compile_with(
        &request.kernels,
        request.target,
        cache,
        &|progress, symbol| {
            // a parent that has stopped listening is no reason to stop
            if let Ok(mut log) = log.lock() {
                let _ = writeln!(log, "{}{symbol}", progress.prefix());
            }
        },
    );
    let (answer, objects) = match result {
        Ok(objects) => (
            Answer::Objects(
                objects
                    .iter()
                    .map(|o| (o.symbol.clone(), o.bytes.len()))
                    .collect(),
            ),
            objects,
        ),
        Err(e) => (
            Answer::Failed {
                symbol: e.symbol().unwrap_or_default().to_string(),
                message: e.to_string(),
            },
            vec![],
        ),
    };
    serde_json::to_writer(&mut output, &answer)?;
    output.write_all(b"\n")?;
    for object in objects {
        output.write_all(&object.bytes)?;
    }
    output.flush()
}

/// Compiles in a child process: `command` is a program that calls [`serve`] on its standard streams.
///
/// # Errors
/// Those of [`compile`]; [`CodegenError::Aborted`] or [`CodegenError::Stuck`] naming the kernels in work when the child dies, or
/// works for ten minutes without an end.
pub fn compile_in_child(
    command: Command,
    kernels: &[Kernel],
    target: Target,
) -> Result<Vec<Object>, CodegenError> {
    compile_within(PATIENCE, command, kernels, target)
}

/// [`compile_in_child`] with another limit on how long the child may work without beginning or ending a kernel.
///
/// # Errors
/// Those of [`compile_in_child`].
pub fn compile_within(
    patience: Duration,
    mut command: Command,
    kernels: &[Kernel],
    target: Target,
) -> Result<Vec<Object>, CodegenError> {
    for kernel in kernels {
        validate(kernel)?;
    }
    let request = Request {
        target,
        kernels: kernels.to_vec(),
    };
    let request = serde_json::to_vec(&request).expect("kernel specs are plain data");
    let stream = || tempfile::tempfile().map_err(CodegenError::Spawn);
    let (mut input, mut output, mut log) = (stream()?, stream()?, stream()?);
    let told = input.write_all(&request).and_then(|()| input.rewind());
    told.map_err(CodegenError::Spawn)?;
    let copy = |f: &File| f.try_clone().map(Stdio::from).map_err(CodegenError::Spawn);
    let mut child = command
        .stdin(copy(&input)?)
        .stdout(copy(&output)?)
        .stderr(copy(&log)?)
        .spawn()
        .map_err(CodegenError::Spawn)?;
    let ended = wait(&mut child, &log, patience).map_err(CodegenError::Spawn)?;
    let said = log.rewind().map(|()| follow(&log)).unwrap_or_default();
    let Some(status) = ended else {
        return Err(CodegenError::Stuck {
            symbols: said.open,
            seconds: patience.as_secs_f64(),
        });
    };
    if status.code() == Some(CANNOT_WRITE) {
        return Err(CodegenError::Unwritten(said.rest.trim().to_string()));
    }
    if !status.success() {
        return Err(CodegenError::Aborted {
            symbols: said.open,
            status: status.to_string(),
            output: said.rest,
        });
    }
    let mut answer = Vec::new();
    let read = output
        .rewind()
        .and_then(|()| output.read_to_end(&mut answer));
    read.map_err(|e| CodegenError::Protocol(e.to_string()))?;
    decode(&answer, target)
}

/// Waits until the child ends; `None` when it was killed, because for so long it had said nothing.
fn wait(child: &mut Child, log: &File, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let (mut said, mut since) = (0, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let length = log.metadata()?.len();
        if length != said {
            (said, since) = (length, Instant::now());
        }
        if since.elapsed() >= patience {
            // It may have ended just now; then there is nothing to kill.
            let _ = child.kill();
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// What a child said on standard error.
#[derive(Default)]
struct Log {
    /// Kernels that have begun and not ended.
    open: Vec<String>,
    /// Every other line.
    rest: String,
}

fn follow(stderr: impl Read) -> Log {
    let mut log = Log::default();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some(symbol) = line.strip_prefix(Progress::Begin.prefix()) {
            log.open.push(symbol.to_string());
        } else if let Some(symbol) = line.strip_prefix(Progress::End.prefix()) {
            log.open.retain(|s| s != symbol);
        } else {
            log.rest.push_str(&line);
            log.rest.push('\n');
        }
    }
    log
}

fn decode(answer: &[u8], target: Target) -> Result<Vec<Object>, CodegenError> {
    let broken = |what: &str| CodegenError::Protocol(what.to_string());
    let end = answer
        .iter()
        .position(|&b| b == b'\n')
        .ok_or_else(|| broken("no answer"))?;
    let (head, mut bytes) = (&answer[..end], &answer[end + 1..]);
    match serde_json::from_slice(head).map_err(|e| CodegenError::Protocol(e.to_string()))? {
        Answer::Failed { symbol, message } => Err(CodegenError::Failed { symbol, message }),
        Answer::Objects(sizes) => sizes
            .into_iter()
            .map(|(symbol, size)| {
                let (object, rest) = bytes
                    .split_at_checked(size)
                    .ok_or_else(|| broken("an object is cut short"))?;
                bytes = rest;
                Object::new(&symbol, target, object.to_vec())
            })
            .collect(),
    }
}
