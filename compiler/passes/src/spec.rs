//! The specification of a kernel, shared by its launches, with its signature and symbol.
//!
//! A model of 400 layers has 10,000 launches of 50 kernels: what is asked of a kernel is found once for each. Leaves numbers of kernels to
//! `assemble`.

use odec_grammar::work;
use odec_program::kernel::{KernelSpec, Signature};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// A specification. What is changed is a specification of its own.
#[derive(Clone, Debug)]
pub struct Spec(Arc<Known>);

#[derive(Clone, Debug)]
struct Known {
    spec: KernelSpec,
    signature: OnceLock<Signature>,
    symbol: OnceLock<String>,
}

impl Spec {
    /// See [`KernelSpec::signature`].
    pub fn signature(&self) -> &Signature {
        let found = || {
            work::add(1);
            self.0.spec.signature()
        };
        self.0.signature.get_or_init(found)
    }

    /// See [`KernelSpec::symbol`].
    pub fn symbol(&self) -> &str {
        self.0.symbol.get_or_init(|| self.0.spec.symbol())
    }
}

impl From<KernelSpec> for Spec {
    fn from(spec: KernelSpec) -> Spec {
        Spec(Arc::new(Known {
            spec,
            signature: OnceLock::new(),
            symbol: OnceLock::new(),
        }))
    }
}

impl Deref for Spec {
    type Target = KernelSpec;
    fn deref(&self) -> &KernelSpec {
        &self.0.spec
    }
}

impl DerefMut for Spec {
    fn deref_mut(&mut self) -> &mut KernelSpec {
        *self = Spec::from(self.0.spec.clone());
        let own = Arc::get_mut(&mut self.0).expect("nothing else has it yet");
        &mut own.spec
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.spec == other.0.spec
    }
}

/// The specifications that there are.
#[derive(Default)]
pub(super) struct Specs(FxHashMap<u64, Vec<Spec>>);

impl Specs {
    /// The one that is there already, or a new one.
    pub fn of(&mut self, spec: KernelSpec) -> Spec {
        // By the bits of constants: zeros of two signs are equal, but not the same.
        let mut hash = FxHasher::default();
        spec.hash(&mut hash);
        let alike = self.0.entry(hash.finish()).or_default();
        if let Some(known) = alike.iter().find(|known| ***known == spec) {
            return known.clone();
        }
        alike.push(spec.into());
        alike[alike.len() - 1].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_program::DType;
    use odec_program::kernel::Gather;

    fn gather(cols: u64) -> KernelSpec {
        let dtype = DType::F32;
        KernelSpec::Gather(Gather { dtype, cols })
    }

    #[test]
    fn a_kernel_is_asked_once_for_all_launches() {
        let mut specs = Specs::default();
        let launches: Vec<Spec> = (0..100).map(|n| specs.of(gather(8 + n % 2))).collect();
        let before = work::done();
        for launch in &launches {
            assert_eq!(launch.signature(), &launch.0.spec.signature());
        }
        assert_eq!(work::done() - before, 2);
    }

    #[test]
    fn a_specification_that_is_changed_is_another() {
        let mut specs = Specs::default();
        let mut changed = specs.of(gather(8));
        let symbol = changed.symbol().to_string();
        *changed = gather(9);
        assert_eq!(specs.of(gather(8)).symbol(), symbol);
        assert_ne!(changed.symbol(), symbol);
    }
}
