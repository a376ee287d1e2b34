//! A process that tries cases one after the other, and the one that watches it.
//!
//! The worker is this executable again, with a limit of its memory. It says which case it begins and what came of it; when it dies or says
//! nothing for too long, that is what came of the case, and another worker goes on behind it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::panic::{self, AssertUnwindSafe};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// One kind of input.
pub struct Family {
    pub name: &'static str,
    /// Cases of `make hostile`, and of the suite.
    pub whole: u64,
    pub part: u64,
    pub run: fn(u64) -> Verdict,
}

/// What came of a case that ended.
pub enum Verdict {
    Ran,
    /// With words, in which the place must be.
    Refused {
        said: String,
        place: String,
    },
}

impl Verdict {
    pub fn refused(said: impl fmt::Display, place: impl fmt::Display) -> Verdict {
        Verdict::Refused {
            said: said.to_string(),
            place: place.to_string(),
        }
    }
}

/// What came of all cases.
#[derive(Default)]
pub struct Counts {
    name: &'static str,
    ran: u64,
    pub refused: u64,
    panics: u64,
    hangs: u64,
    aborts: u64,
    wordless: u64,
    pub faults: Vec<String>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let all = self.ran + self.refused + self.faults.len() as u64;
        write!(
            f,
            "{}: {all} cases, {} refused with a place, {} ran, {} panics, {} hangs, {} aborts, {} without a place",
            self.name, self.refused, self.ran, self.panics, self.hangs, self.aborts, self.wordless
        )?;
        self.faults.iter().try_for_each(|x| write!(f, "\n  {x}"))
    }
}

/// What the worker is asked for, `family first end`, and what its lines begin with.
const ASKED: &str = "ODEC_SURVIVAL";
const LINE: &str = "survival ";
/// All cases, not a part: set by `make hostile`.
const WHOLE: &str = "ODEC_SURVIVAL_WHOLE";
/// How long a case may compute, and how long it may do nothing. It takes milliseconds, some kernels seconds; the limit is for what would
/// never end. On a busy machine a case waits for a core, so its own time counts.
const PATIENCE: Duration = Duration::from_secs(120);
/// Address space of the worker, in KiB: far more than any case plans, far less than what damaged numbers ask for.
const SPACE: usize = 8 << 20;
/// What a thread reserves of it, which there is one of for each core.
const A_THREAD: usize = 256 << 10;

/// The worker's side.
pub fn serve(families: &[Family]) {
    let Ok(asked) = std::env::var(ASKED) else {
        return;
    };
    let words: Vec<&str> = asked.split(' ').collect();
    let family = families.iter().find(|f| f.name == words[0]).unwrap();
    let [first, end] = [1, 2].map(|n| words[n].parse::<u64>().unwrap());
    static SAID: Mutex<String> = Mutex::new(String::new());
    panic::set_hook(Box::new(|info| {
        *SAID.lock().unwrap() = info.to_string();
    }));
    for n in first..end {
        eprintln!("{LINE}begin {n}");
        let what = match panic::catch_unwind(AssertUnwindSafe(|| (family.run)(n))) {
            Ok(Verdict::Ran) => "ran".to_string(),
            Ok(Verdict::Refused { said, place }) if !place.is_empty() && said.contains(&place) => {
                "refused".into()
            }
            Ok(Verdict::Refused { said, .. }) => format!("wordless {said}"),
            Err(_) => format!("panic {}", SAID.lock().unwrap()),
        };
        eprintln!("{LINE}end {}", what.replace('\n', " | "));
    }
}

/// Tries the cases of a family.
pub fn survive(family: &Family) -> Counts {
    let cases = match std::env::var_os(WHOLE) {
        Some(_) => family.whole,
        None => family.part,
    };
    let mut counts = Counts {
        name: family.name,
        ..Counts::default()
    };
    let mut next = 0;
    while next < cases {
        next = watch(family.name, next, cases, &mut counts);
    }
    counts
}

/// Watches one worker from a case on; gives the next case that nobody has tried.
fn watch(name: &'static str, first: u64, end: u64, counts: &mut Counts) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let space = SPACE + threads * A_THREAD;
    let limited = format!("ulimit -v {space}; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "worker", "--nocapture"])
        .env(ASKED, format!("{name} {first} {end}"))
        // What it leaves behind when it dies goes with the folder.
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines(&mut child);
    let (mut case, mut other) = (first, String::new());
    // The worker's own time when the case began, and when it was last looked at.
    let (mut began, mut looked) = (Duration::ZERO, Duration::ZERO);
    loop {
        let line = lines.recv_timeout(PATIENCE);
        let now = computed(&child);
        if line == Err(RecvTimeoutError::Timeout) && now > looked && now - began < PATIENCE {
            looked = now;
            continue;
        }
        let told = line.as_ref().map(|l| l.strip_prefix(LINE).unwrap_or(""));
        let mut fault = |count: fn(&mut Counts) -> &mut u64, what: &str| {
            *count(counts) += 1;
            counts.faults.push(format!("{name} {case}: {what}"));
        };
        match told {
            Ok(told) if told.starts_with("begin ") => {
                case = told["begin ".len()..].parse().unwrap();
                (began, looked) = (now, now);
                other.clear();
            }
            Ok("end ran") => counts.ran += 1,
            Ok("end refused") => counts.refused += 1,
            Ok(told) if told.starts_with("end panic") => fault(|c| &mut c.panics, told),
            Ok(told) if told.starts_with("end wordless") => fault(|c| &mut c.wordless, told),
            Ok(_) => other = line.unwrap_or_default(),
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                child.wait().unwrap();
                fault(|c| &mut c.hangs, "it is not done");
                return case + 1;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().unwrap();
                if status.success() {
                    return end;
                }
                fault(|c| &mut c.aborts, &format!("{status}: {other}"));
                return case + 1;
            }
        }
    }
}

/// How long a process has computed: `utime` and `stime` of proc(5), in hundredths of a second.
fn computed(child: &Child) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // The second field is a name in parentheses, which may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    Duration::from_millis(ticks.map(|n| n.parse().unwrap_or(0)).sum::<u64>() * 10)
}

/// The worker's lines as they come.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let stderr = child.stderr.take().unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
