//! How the parameters of a field are called.
//!
//! A layer's parameters are called by its role (`norm`, `mlp`, …); where a role occurs several times, its occurrences are numbered from 1. What
//! a body computes under a name has that name: `gate = x |> linear(hidden)` gives `gate.weight`. A layer that is written `as mlp` is numbered among
//! all parts of this role, and each of its parameters has that number. A field that another one names has its
//! own name before all that.

use super::Map;
use super::pipeline::body_roles;
use crate::scheme::layer::Layer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The word of linear maps, which says nothing where a value has a name.
const MAP: &str = "linear";

/// The paths of a field that are taken, each with whose it is: no two parts share one.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    taken: Rc<RefCell<(usize, BTreeMap<String, usize>)>>,
}

impl Claims {
    /// Somebody who may have paths.
    fn owner(&self) -> usize {
        let mut taken = self.taken.borrow_mut();
        taken.0 += 1;
        taken.0
    }

    /// The path if it is free, otherwise with the first number that makes it so.
    fn claim(&self, path: String, owner: usize) -> String {
        let taken = &mut self.taken.borrow_mut().1;
        let mut free = |path: &str| *taken.entry(path.into()).or_insert(owner) == owner;
        if free(&path) {
            return path;
        }
        let others = (2..).map(|n| format!("{path}.{n}"));
        others.into_iter().find(|p| free(p)).unwrap_or(path)
    }
}

/// What stands before the paths of a part of a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Naming {
    /// Of the fields and values around it, with the dot behind them.
    prefix: String,
    /// The value that the part is computed for.
    value: Option<String>,
    /// Of a layer that has a role: the role, and prefix and name of the value that has no other part with parameters.
    own: Option<(String, String, String)>,
    /// Which of its role the layer around it is, with a dot before it; empty if it is the only one.
    number: String,
    /// How often each role was read so far.
    seen: BTreeMap<String, usize>,
    /// How often each role is there.
    roles: Roles,
    claims: Claims,
}

/// The roles of a field's or a value's parts, each with how often it is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Roles(BTreeMap<String, usize>);

impl Roles {
    pub fn add(&mut self, role: &str) {
        *self.0.entry(role.into()).or_default() += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of a layer written in the language.
    pub fn add_those_of(&mut self, layer: &Layer) {
        match &layer.role {
            Some(role) => self.add(role),
            None => self.add_inside(layer),
        }
    }

    /// Adds those of its body.
    fn add_inside(&mut self, layer: &Layer) {
        let of = layer.roles.get_or_init(|| {
            let mut roles = Roles::default();
            body_roles(&layer.body, &layer.inside, &mut roles);
            roles.0
        });
        for (role, times) in of {
            *self.0.entry(role.clone()).or_default() += times;
        }
    }

    fn is_one(&self) -> bool {
        self.0.values().sum::<usize>() == 1
    }
}

impl Naming {
    /// Of a field, whose parts have these roles.
    pub fn of_field(roles: Roles) -> Naming {
        Naming {
            roles,
            ..Naming::default()
        }
    }

    /// Of a field that is named in this one.
    pub fn named_field(&self, name: &str, roles: Roles) -> Naming {
        let name = self.claims.claim(name.to_string(), self.claims.owner());
        Naming {
            prefix: format!("{name}."),
            roles,
            claims: self.claims.clone(),
            ..Naming::default()
        }
    }

    /// Of the inside of a layer that has a role. If it is all that has parameters in a value, what it computes under the role's name is called as the
    /// value is: `n = rmsnorm` has `n.gain`.
    pub fn layer_of_role(&mut self, role: &str, layer: &Layer) -> Naming {
        let number = self.numbered(role);
        let mut roles = Roles::default();
        roles.add_inside(layer);
        let value = self.value.clone().filter(|_| self.roles.is_one());
        Naming {
            prefix: self.inside(),
            own: value.map(|value| (role.to_string(), self.prefix.clone(), value)),
            number,
            roles,
            claims: self.claims.clone(),
            ..Naming::default()
        }
    }

    /// Where a value without parameters is computed.
    pub fn place(&self, name: &str) -> String {
        format!("{}{name}{}", self.inside(), self.number)
    }

    /// Where the value is computed that the part is of.
    pub fn own_place(&self) -> String {
        let value = self.value.as_deref().unwrap_or_default();
        format!("{}{value}", self.prefix)
    }

    /// Of what a body computes under a name, of parts with these roles.
    pub fn value(&mut self, name: &str, roles: Roles) -> Naming {
        if let Some((_, prefix, value)) = self.own.take_if(|(role, ..)| role == name) {
            return Naming {
                prefix,
                value: Some(value),
                roles,
                claims: self.claims.clone(),
                ..Naming::default()
            };
        }
        Naming {
            prefix: self.inside(),
            value: Some(self.counted(name)),
            roles,
            claims: self.claims.clone(),
            ..Naming::default()
        }
    }

    /// The path of a parameter that a body names itself.
    pub fn learned(&mut self, name: &str) -> String {
        let path = self.inside() + &self.counted(name);
        self.claims.claim(path, self.claims.owner())
    }

    /// Paths of the next part of this role.
    pub fn part(&mut self, role: &str) -> Paths {
        let number = self.numbered(role);
        let own = self
            .value
            .as_ref()
            .filter(|_| role == MAP || self.roles.is_one());
        Paths {
            own: own.map(|value| (role.to_string(), format!("{}{value}{number}", self.prefix))),
            inside: self.inside(),
            number,
            owner: self.claims.owner(),
            claims: self.claims.clone(),
        }
    }

    /// Before the names of what stands below the value.
    fn inside(&self) -> String {
        match &self.value {
            Some(value) => format!("{}{value}.", self.prefix),
            None => self.prefix.clone(),
        }
    }

    /// A name with its number among those that are called so.
    fn counted(&mut self, name: &str) -> String {
        format!("{name}{}", self.numbered(name))
    }

    /// The number of the next part of a role, with that of the layer around it.
    fn numbered(&mut self, role: &str) -> String {
        let own = self.next(role).map(|n| format!(".{n}"));
        own.unwrap_or_default() + &self.number
    }

    /// Which of its role the next part is, if there are several.
    fn next(&mut self, role: &str) -> Option<usize> {
        let seen = self.seen.entry(role.into()).or_default();
        *seen += 1;
        let several = self.roles.0.get(role).is_some_and(|n| *n > 1);
        several.then_some(*seen)
    }
}

/// Paths of a layer's parameters, below the field.
pub struct Paths {
    /// The part that has the value's name, and its path.
    own: Option<(String, String)>,
    /// Before the paths of all others.
    inside: String,
    /// With the dot before it, or empty.
    number: String,
    owner: usize,
    claims: Claims,
}

impl Paths {
    /// `q.weight` or, if the role occurs several times, `q.2.weight`.
    pub fn path(&self, part: &str, kind: &str) -> String {
        let stem = match &self.own {
            Some((role, path)) if role == part => path.clone(),
            _ => format!("{}{part}{}", self.inside, self.number),
        };
        let stem = self.claims.claim(stem, self.owner);
        format!("{stem}.{kind}")
    }

    /// A linear map from columns to rows.
    pub fn map(&self, part: &str, bias: bool, [rows, cols]: [u64; 2]) -> Map {
        Map {
            weight: self.path(part, "weight"),
            bias: bias.then(|| self.path(part, "bias")),
            rows,
            cols,
        }
    }
}
