//! What belongs to no step stands before all of them, so that equal steps look equal.

use super::evolve::Sharing;
use super::graph_builder::GraphBuilder;
use super::layers::network::Network;
use super::params::{field_name, field_path, learned_path};
use crate::error::BuildError;
use crate::scheme::stage::Phase;
use odec_graph::{Builder, Site};

impl GraphBuilder<'_> {
    /// What belongs to no step stands before all of them, so that equal steps look equal: rotary tables, and the
    /// parameters of fields and the learned coefficients that all steps share.
    pub(super) fn common(&mut self, b: &mut Builder) -> Result<(), BuildError> {
        for e in &self.spec.evolves {
            if e.all_layers().any(Network::sees_positions) {
                b.span = Some(e.span);
                b.site = Site {
                    path: "positions".into(),
                    ..Site::default()
                }
                .into();
                self.sinusoids(b)?;
            }
            self.decider_params(b, e)?;
            for l in e.unrolled.phases().flat_map(|(at, _)| e.learned(at)) {
                if l.shared {
                    b.span = Some(l.span);
                    b.site = Site {
                        evolve: e.label.clone(),
                        path: "scheme".into(),
                        ..Site::default()
                    }
                    .into();
                    self.param(b, &learned_path(e, &l, Phase::Start))?;
                }
            }
            for (program, layers) in e.layers.iter().enumerate() {
                for (field, layer) in layers.iter().enumerate() {
                    b.span = Some(e.unrolled.programs[program].fields[field].span);
                    for angles in layer.rotated() {
                        self.rotary(b, angles)?;
                    }
                    let used = e.unrolled.programs[program].usages[field] > 0;
                    let policy = e.policies[program][field];
                    if used && matches!(policy, Sharing::Shared | Sharing::TimeDependent(_)) {
                        b.site = Site {
                            evolve: e.label.clone(),
                            path: field_name(e, program, field, 0),
                            ..Site::default()
                        }
                        .into();
                        let prefix = field_path(e, program, field, 0, Phase::Start);
                        for p in layer.params() {
                            self.param(b, &format!("{prefix}.{}", p.path))?;
                            if let Sharing::TimeDependent(o) = policy {
                                for (path, ..) in o.params(&p, 0.0) {
                                    self.param(b, &format!("{prefix}.{path}"))?;
                                }
                            }
                        }
                    }
                }
            }
        }
        self.params.share(std::mem::take(&mut self.timed.adapted));
        Ok(())
    }
}
