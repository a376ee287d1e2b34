//! What a profile says: lines, sums and pictures of measured launches.
//!
//! Takes what the executor measured, with the program it is of and the roof of the device; gives rows ([`sums`]), a trace for other tools
//! ([`trace`]), a timeline as a picture ([`timeline`]). Leaves measuring to [`crate::executor::profile`], tables to the command line.

pub mod arena;
pub mod reading;
pub mod sums;
pub mod timeline;
pub mod trace;

use crate::device::roof::Roof;
use crate::executor::profile::{Launched, Profile};
use odec_program::manifest::Manifest;
use odec_program::site::{Role, names};
use odec_program::{Instr, Site};
use odec_source::escape::escaped;

/// A profile with what its launches are called by.
pub struct NamedProfile<'a> {
    pub manifest: &'a Manifest,
    pub profile: &'a Profile,
    pub roof: Option<&'a Roof>,
    /// By site, as they are printed: an artifact may be anybody's.
    names: Vec<String>,
    fields: Vec<String>,
}

/// A launch with its origin.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub launch: &'a Launched,
    pub site: &'a Site,
    /// In words: `step 3 ffn.up forward`.
    pub name: &'a str,
    pub field: &'a str,
    pub kernel: &'a odec_program::Kernel,
    /// Number of the site, and of the kernel.
    pub numbers: (u32, u32),
}

impl Named<'_> {
    pub fn role(&self) -> Role {
        self.site.role()
    }
}

impl<'a> NamedProfile<'a> {
    pub fn new(
        manifest: &'a Manifest,
        profile: &'a Profile,
        roof: Option<&'a Roof>,
    ) -> NamedProfile<'a> {
        let sites = &manifest.program.sites;
        NamedProfile {
            manifest,
            profile,
            roof,
            names: names(sites).iter().map(|name| escaped(name)).collect(),
            fields: sites.iter().map(|s| escaped(&s.field())).collect(),
        }
    }

    pub fn launches(&self) -> impl Iterator<Item = Named<'_>> {
        self.profile.launches.iter().map(|l| self.named(l))
    }

    fn named<'t>(&'t self, launch: &'t Launched) -> Named<'t> {
        let program = &self.manifest.program;
        let i: &Instr = &program.entries[&launch.entry].instrs[launch.instr];
        Named {
            launch,
            site: program.site(i),
            name: &self.names[i.site as usize],
            field: &self.fields[i.site as usize],
            kernel: &program.kernels[i.kernel as usize],
            numbers: (i.site, i.kernel),
        }
    }

    /// The least time that a launch takes, in seconds.
    fn least(&self, n: &Named) -> Option<f64> {
        let (spec, l) = (&n.kernel.spec, n.launch);
        self.roof?.seconds(spec, l.operations, l.bytes)
    }
}
