//! Why a splitting whose operators are one field has no order: `lie(f, f)` with shared weights.
//!
//! Takes an evolve and its order as it is computed; gives a sentence. With shared weights the operators are one field, so what is solved is x' = f, of
//! which each operator makes a step of its own. Leaves other limits of an order to who shows its first condition.

use super::report::{Evolved, Found, order_of};
use crate::scheme::PerUse;
use crate::scheme::flow::{Field, Flow, FlowArgKind};
use odec_exact::Exact;
use odec_text::number::number;

/// What is to be said of an order 0, where a field stands for several operators.
pub fn same_field(e: &Evolved, found: &Found) -> Option<String> {
    let limit = found.limit.as_ref().filter(|_| found.order == 0)?;
    let name = &limit.differential;
    let mut leaves = Vec::new();
    operators(&e.flow, &mut leaves);
    let times = leaves.iter().filter(|leaf| *leaf == name).count();
    let is_sum = limit.expected == Exact::one() && limit.value != Exact::one();
    if times < 2 || !is_sum || e.per_use.of(name) {
        return None;
    }
    let many = match times {
        2 => "both operators are".to_string(),
        n => format!("{n} operators are"),
    };
    let said = format!(
        "{many} `{name}` with the same weights, so the equation is x' = {name}, and a step of h takes {} h of it",
        number(&limit.value)
    );
    let mut fields = e.per_use.fields.clone();
    fields.insert(name.clone(), true);
    let own = Evolved {
        per_use: PerUse {
            fields,
            ..e.per_use.clone()
        },
        ..e.clone()
    };
    let instead = match order_of(&own) {
        Ok(Found { order: 0, .. }) | Err(_) => String::new(),
        Ok(found) => format!(
            "; with weights for each of them, as `weights per use` or two fields have, the order is {}",
            found.order
        ),
    };
    Some(said + &instead)
}

/// The fields that a flow is given, as often as they are.
fn operators(flow: &Flow, leaves: &mut Vec<String>) {
    for arg in flow.args.iter().chain(&flow.list) {
        match &arg.kind {
            FlowArgKind::Flow(inner) => operators(inner, leaves),
            FlowArgKind::Field { field, .. } => {
                if let Field::Leaf(leaf) = &**field {
                    leaves.push(leaf.name.clone());
                }
            }
        }
    }
}
