//! Reports as JSON: exact numbers as strings, with decimals beside them where programs will compute with them.

use super::exponential::Stiff;
use super::general::General;
use super::internal;
use super::keep::Kept;
use super::learned::{Learning, Methods, Touch};
use super::modified;
use super::notation::end;
use super::report::{Additive, Found, Limit, PrincipalError, Report};
use super::stable;
use super::start::{Limited, Started};
use super::unequal::{Growth, Unequal};
use crate::scheme::Learned;
use crate::scheme::work::StepWork;
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::glm::{self, characteristic::Characteristic};
use odec_numerics::joint::{AtInfinity, Function, Many};
use odec_numerics::manifold::Shape;
use odec_numerics::multistep::{Facts, Multistep};
use odec_numerics::poly::{Extent, Poly};
use odec_numerics::ssp::Ssp;
use odec_numerics::stability::Stability;
use serde_json::{Value, json};

fn row(r: &[Exact]) -> Value {
    r.iter().map(Exact::to_string).collect()
}
fn matrix(m: &[Vec<Exact>]) -> Value {
    m.iter().map(|r| row(r)).collect()
}

fn limit(l: &Limit) -> Value {
    json!({
        "differential": l.differential, "tree": l.tree,
        "value": l.value.to_string(), "exact": l.expected.to_string(),
    })
}

fn found(f: &Found) -> Value {
    json!({
        "order": f.order,
        "within": f.within.as_ref().map(Exact::to_string),
        "limit": f.limit.as_ref().map(limit),
        "first_steps": f.first.as_ref().map(|l| json!({
            "order": l.order, "exactly": l.exactly, "steps": l.steps, "what": l.what,
        })),
    })
}

/// A number, `"unbounded"`, or null where it is not decided.
fn extent(e: &Option<Extent>, squared: bool) -> Value {
    match e {
        None => Value::Null,
        Some(Extent::Zero) => json!(0.0),
        Some(Extent::Infinite) => json!("unbounded"),
        Some(Extent::Until { hi, .. }) => json!(end(hi, squared)),
    }
}

fn tableau(t: &Tableau) -> Value {
    let additive: Vec<Value> = t
        .parts()
        .iter()
        .map(|p| {
            json!({
                "field": p.field, "A": matrix(&p.a), "b": row(&p.b), "c": row(&p.nodes()),
                "b_hat": p.embedded.as_deref().map(row),
            })
        })
        .collect();
    json!({
        "stages": t.stages(), "explicit": t.is_explicit(),
        "A": matrix(&t.a), "b": row(&t.b), "c": row(&t.nodes()),
        "b_hat": t.embedded.as_deref().map(row),
        "fields": t.field_of.iter().map(|f| t.fields[*f].clone()).collect::<Vec<_>>(),
        "additive": additive,
    })
}

fn error(e: &PrincipalError) -> Value {
    let terms: Vec<Value> = e
        .terms
        .iter()
        .map(|(t, off)| json!({ "differential": t, "off": off.to_string() }))
        .collect();
    json!({ "norm": e.norm, "conditions": e.conditions, "terms": terms })
}

fn multistep(m: &Multistep, f: &Facts) -> Value {
    json!({
        "alpha": row(&m.alpha), "beta": row(&m.beta), "steps": f.steps, "explicit": f.explicit, "order": f.order,
        "error_constant": f.error_constant.as_ref().map(Exact::to_string),
        "zero_stable": f.zero_stable, "strongly_stable": f.strongly_stable, "A_stable": f.a_stable, "I_stable": f.i_stable,
        "angle": f.angle.as_ref().map(|a| a.degrees().0),
        "real_limit": extent(&f.real, false), "imaginary_limit": extent(&f.imaginary_squared, true),
    })
}

fn learning(l: &Learning) -> Value {
    let touch = |t: &Touch| {
        let slope = |(order, tree, s): &(usize, String, Exact)| json!({ "order": order, "differential": tree, "slope": s.to_string() });
        json!({
            "name": t.name, "initial": t.init.to_string(), "moves_order": t.breaks,
            "slopes": t.slopes.iter().map(slope).collect::<Vec<_>>(),
        })
    };
    let methods = |m: &Methods| {
        let shape = match m.shape {
            Shape::Manifold => "manifold",
            Shape::Singular => "singular",
            Shape::Undecided => "undecided",
        };
        json!({ "order": m.order, "free": m.tangent, "shape": shape })
    };
    json!({
        "coefficients": l.coefficients.iter().map(touch).collect::<Vec<_>>(),
        "up_to_order": l.up_to,
        "methods": l.methods.iter().map(methods).collect::<Vec<_>>(),
    })
}

fn kept(k: &Kept) -> Value {
    let names = |all: &[Learned]| all.iter().map(|l| l.name.clone()).collect::<Value>();
    let derived = k.derived.iter().map(|d| {
        let under = (!d.under.is_one()).then(|| d.under.to_string());
        json!({ "name": d.name, "over": d.over.to_string(), "under": under })
    });
    json!({
        "order": k.order, "dimension": k.chart.free,
        "coefficients": names(&k.coefficients), "trained": names(&k.free),
        "derived": derived.collect::<Vec<_>>(),
    })
}

fn general(g: &General, f: &glm::Facts) -> Value {
    let m = &g.glm;
    let by_w = |c: &Characteristic| -> Value { c.by_w.iter().map(|p| row(&p.0)).collect() };
    json!({
        "values": g.names, "A": matrix(&m.a), "U": matrix(&m.u), "B": matrix(&m.b), "V": matrix(&m.v),
        "fields": m.field_of.iter().map(|f| m.fields[*f].clone()).collect::<Vec<_>>(),
        "preconsistency": f.preconsistency.as_deref().map(row),
        "consistency": f.consistency.as_deref().map(row),
        "order": f.order, "error_constant": f.error_constant.as_ref().map(Exact::to_string),
        "zero_stable": f.zero_stable, "strongly_stable": f.strongly_stable,
        "characteristic": f.characteristic.as_ref().map(by_w),
        "A_stable": f.a_stable,
        "real_limit": extent(&f.real, false), "imaginary_limit": extent(&f.imaginary_squared, true),
    })
}

fn started(s: &Started, first: Option<&Limited>) -> Value {
    json!({ "by": s.by, "order": s.order, "steps": s.steps, "limits_order_to": first.map(|l| l.order) })
}

fn unequal(u: &Unequal) -> Value {
    let stable = |g: &Growth| json!({ "bounded": g.bounded, "growth": g.largest });
    json!({
        "ratios": u.ratios.as_ref().map(|r| row(r)),
        "coefficients_of_grid": u.fitted, "order_on_equal_steps": u.equal,
        "zero_stable": u.growth.as_ref().map(stable),
    })
}

/// Bounds of `hK`, and what follows for the K and the h that are known.
fn stable_step(r: &Report) -> Value {
    let over = |x: Option<f64>, by: &Option<Exact>| match (x, by) {
        (Some(x), Some(by)) if x.is_finite() => json!(x / by.to_f64()),
        _ => Value::Null,
    };
    let bound = |b: &stable::Bound| {
        let hk = r.h.as_ref().zip(r.lipschitz.as_ref()).map(|(h, k)| h * k);
        json!({
            "of": b.name,
            "bound": match b.value() {
                Some(x) if x.is_infinite() => json!("unbounded"),
                x => json!(x),
            },
            "h": over(b.value(), &r.lipschitz),
            "K": over(b.value(), &r.h),
            "stable": hk.and_then(|hk| b.holds(&hk)),
        })
    };
    let bounds = stable::bounds(r);
    match bounds.is_empty() {
        true => Value::Null,
        false => bounds.iter().map(bound).collect(),
    }
}

fn many(p: &Many) -> Value {
    let term = |(e, c): (&Vec<u32>, &Exact)| json!({ "powers": e, "coefficient": c.to_string() });
    p.0.iter().map(term).collect()
}

fn additive(a: &Additive) -> Value {
    let function = |f: &Function| json!({ "num": many(&f.numerator), "den": many(&f.denominator) });
    let alone = |s: &Option<Stability>| {
        s.as_ref().map(|s| {
            json!({
                "A_stable": s.a_stable, "I_stable": s.i_stable, "L_stable": s.l_stable,
                "real_limit": extent(&s.real, false), "imaginary_limit": extent(&s.imaginary_squared, true),
            })
        })
    };
    let far = |f: &AtInfinity| match f {
        AtInfinity::Zero => json!(0.0),
        AtInfinity::Infinite => json!("unbounded"),
        AtInfinity::Quotient(f) => function(f),
    };
    json!({
        "fields": a.fields, "converged": a.converged, "function": function(&a.joint.function),
        "alone": a.joint.alone.iter().map(alone).collect::<Vec<_>>(), "together": alone(&a.joint.together),
        "far": a.joint.far.iter().map(far).collect::<Vec<_>>(),
    })
}

/// One object.
pub fn json(r: &Report) -> Value {
    let poly = |p: &Poly| row(&p.0);
    let one = r.one_field.as_ref();
    let properties = one.map(|f| &f.properties);
    let stability = one.and_then(|f| f.stability.as_ref());
    let main = match &r.implicit {
        Some((t, _)) => Some(t),
        None => r.tableau.as_ref().ok(),
    };
    let mut all = json!({
        "name": r.name,
        "kind": r.kind,
        "order_claimed": r.claims,
        "order": r.order.as_ref().ok().map(|f| f.order),
        "proof": r.order.as_ref().ok().map(found),
        "why_not": r.order.as_ref().err().or(r.tableau.as_ref().err()).map(|b| &b.why),
        "euler_sub_steps": r.stepped.as_ref().map(found),
        "stages_found_exactly": r.implicit.as_ref().map(|(_, f)| found(f)),
        "embedded_order": r.embedded,
        "error_constants": r.error.as_ref().map(error),
        "lift": r.upgrade.as_ref().map(|l| json!({
            "order": l.order, "shared_weights": l.shared,
            "by": l.by.iter().map(|(field, scheme)| json!([field, scheme])).collect::<Vec<_>>(),
        })),
        "work": r.work.as_ref().map(StepWork::json),
        "flows": r.flows.iter().map(|(name, c)| json!([name, c.to_string()])).collect::<Vec<_>>(),
        "tableau": main.map(tableau),
        "computed": r.implicit.as_ref().and(r.tableau.as_ref().ok()).map(tableau),
        "structure": properties.map(|p| p.kind.name()),
        "stage_order": properties.map(|p| p.stage_order()),
        "stiff_order": r.stiff.as_ref().and_then(|s| s.as_ref().ok()).map(Stiff::json),
        "assumptions": properties.map(|p| json!({ "B": p.quadrature, "C": p.stages, "D": p.weights })),
        "stiffly_accurate": properties.map(|p| p.stiffly_accurate),
        "first_same_as_last": properties.map(|p| p.first_same_as_last),
        "symplectic": properties.map(|p| p.symplectic),
        "symmetric": properties.map(|p| p.symmetric),
        "stability": stability.map(|s| json!({
            "num": poly(&s.function.numerator), "den": poly(&s.function.denominator),
        })),
        "A_stable": stability.and_then(|s| s.a_stable),
        "I_stable": stability.and_then(|s| s.i_stable),
        "L_stable": stability.and_then(|s| s.l_stable),
        "real_limit": stability.map_or(Value::Null, |s| extent(&s.real, false)),
        "imaginary_limit": stability.map_or(Value::Null, |s| extent(&s.imaginary_squared, true)),
        "ssp": one.and_then(|f| f.ssp.as_ref()).map(|s| match s {
            Ssp::None => json!(0.0),
            Ssp::Unbounded => json!("unbounded"),
            Ssp::Exactly(c) => json!(c.to_f64()),
            Ssp::Between(c) => json!(c.lo.to_f64()),
        }),
        "multistep": r.multistep.as_ref().map(|(m, f)| multistep(m, f)),
    });
    let learned = r.learning.as_ref().and_then(|l| l.as_ref().ok());
    all["learned"] = json!(learned.map(learning));
    all["keeps"] = json!(r.kept.as_ref().map(kept));
    all["general_linear"] = r
        .general
        .as_ref()
        .map_or(Value::Null, |(g, f)| general(g, f));
    let computed = r.computed.as_ref().and_then(|f| f.as_ref().ok());
    let first = computed.and_then(|f| f.first.as_ref());
    all["started_by"] = r
        .started
        .as_ref()
        .map_or(Value::Null, |s| started(s, first));
    all["as_computed"] = computed.map_or(Value::Null, found);
    if let Some(u) = &r.unequal {
        all["unequal_steps"] = unequal(u);
    }
    if let Some(p) = &r.pair {
        all["two_states"] = p.json();
    }
    if let Some(tol) = &r.tolerance {
        all["tolerance"] = json!(tol.to_string());
    }
    all["computed_stability"] = r.iterated.as_ref().map_or(Value::Null, |i| {
        json!({
            "num": i.function.as_ref().map(poly),
            "real_limit": extent(&i.real, false), "imaginary_limit": extent(&i.imaginary_squared, true),
        })
    });
    all["modified_equation"] = json!(r.modified.as_ref().map(modified::json));
    all["internal_stability"] = json!(r.internal.as_ref().map(internal::json));
    all["stable_step"] = stable_step(r);
    all["joint"] = r.additive.as_ref().map(additive).into();
    all
}
