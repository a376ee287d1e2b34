//! Many kernels to objects: on several threads, through the cache, and in a child process so that an
//! abort inside LLVM is an error that names the kernel.
//!
//! [`compile`] works in this process. [`compile_in_child`] asks a child, which runs [`serve`]: the
//! request and the answer are JSON (objects follow the answer's line as they are), each kernel's
//! beginning and end are lines of the child's standard error.

use crate::cache::Cache;
use crate::error::CodegenError;
use crate::object::Object;
use crate::pipeline::Pipeline;
use odec_program::{Kernel, Target};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    std::thread::scope(|s| {
        for _ in 1..cores.min(kernels.len()) {
            s.spawn(work);
        }
        work();
    });
    let mut done = done
        .into_inner()
        .expect("no thread panics while it holds the lock");
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
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
/// Those of [`compile`]; [`CodegenError::Aborted`] naming the kernels in work when the child dies.
pub fn compile_in_child(
    mut command: Command,
    kernels: &[Kernel],
    target: Target,
) -> Result<Vec<Object>, CodegenError> {
    let request = Request {
        target,
        kernels: kernels.to_vec(),
    };
    let request = serde_json::to_vec(&request).expect("kernel specs are plain data");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(CodegenError::Spawn)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let log = std::thread::spawn(move || stderr.map(follow).unwrap_or_default());
    // a child that dies early closes the pipe: its exit status says more than the failed write
    let _ = stdin.map(|mut pipe| pipe.write_all(&request));
    let mut answer = Vec::new();
    let read = stdout.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut answer));
    let status = child.wait().map_err(CodegenError::Spawn)?;
    let log = log.join().unwrap_or_default();
    if !status.success() {
        return Err(CodegenError::Aborted {
            symbols: log.open,
            status: status.to_string(),
            output: log.rest,
        });
    }
    read.map_err(|e| CodegenError::Protocol(e.to_string()))?;
    decode(&answer, target)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_dies_is_an_error_naming_the_kernel_in_work() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo odec-codegen begin a >&2; echo odec-codegen begin b >&2; echo odec-codegen end a >&2;
            echo LLVM ERROR: no >&2; kill -ABRT $$"]);
        let error = compile_in_child(shell, &[], Target::Avx2)
            .unwrap_err()
            .to_string();
        assert!(error.contains("compiling b: LLVM ERROR: no"), "{error}");
    }

    #[test]
    fn answers_that_make_no_sense_are_errors() {
        for say in [
            "",
            "printf x",
            "echo '{}'",
            "echo '{\"Objects\":[[\"k\",9]]}'",
            "echo '{\"Objects\":[[\"k\",0]]}'",
        ] {
            let mut shell = Command::new("sh");
            shell.args(["-c", say]);
            assert!(compile_in_child(shell, &[], Target::Avx2).is_err(), "{say}");
        }
        assert!(matches!(
            compile_in_child(Command::new("/no/such"), &[], Target::Avx2),
            Err(CodegenError::Spawn(_))
        ));
    }

    fn pack(nr: u32) -> Kernel {
        let n = odec_program::kernel::Extent::Static(5);
        let spec = odec_program::KernelSpec::Pack(odec_program::kernel::Pack {
            dtype: odec_program::DType::F32,
            from: odec_program::DType::F32,
            n,
            k: n,
            nr,
            transposed: true,
            order: Default::default(),
        });
        Kernel {
            symbol: spec.symbol(),
            spec,
        }
    }

    #[test]
    fn a_child_answers_as_this_process_does() {
        let ask = |kernels: Vec<Kernel>| {
            let request = Request {
                target: Target::Avx2,
                kernels,
            };
            let (mut answer, mut log) = (Vec::new(), Vec::new());
            serve(
                &serde_json::to_vec(&request).unwrap()[..],
                &mut answer,
                &mut log,
                None,
            )
            .unwrap();
            let log = follow(&log[..]);
            assert_eq!((log.open, log.rest), (vec![], String::new()));
            decode(&answer, Target::Avx2)
        };
        let kernels = vec![pack(8), pack(16), pack(24)];
        let here = compile(&kernels, Target::Avx2, None).unwrap();
        assert_eq!(
            here.iter().map(|o| &o.symbol).collect::<Vec<_>>(),
            kernels.iter().map(|k| &k.symbol).collect::<Vec<_>>()
        );
        assert_eq!(ask(kernels).unwrap(), here);
        assert_eq!(ask(vec![]).unwrap(), vec![]);
        let bad = ask(vec![pack(8), pack(3)]).unwrap_err();
        assert_eq!(bad.symbol(), Some(pack(3).symbol.as_str()));
        assert!(bad.to_string().contains("whole vectors"), "{bad}");
        assert!(serve(&b"nonsense"[..], &mut Vec::new(), io::sink(), None).is_err());
    }
}
