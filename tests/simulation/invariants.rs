//! What must hold at every instant whatever the history, on the heart's own words and without the model.

use pulsegate::health::{Admin, Member, Mode, PoolHealth, Standing, Verdict};

/// Every broken invariant, in words.
pub fn check(heart: &PoolHealth) -> Result<(), Vec<String>> {
    let (picture, rules) = (heart.picture(), heart.rules());
    let members: Vec<(&Member, Standing)> = heart.members().iter().zip(picture.standings.iter().copied()).collect();
    let count = |of: &dyn Fn(&Member, Standing) -> bool| members.iter().filter(|(m, s)| of(m, *s)).count();
    let active = |m: &Member| m.admin() == Admin::Enabled && m.spec().weight > 0;
    let counted = |m: &Member| active(m) && m.proven() && m.spec().key.address.is_some();
    let serving = |m: &Member| picture.tier == Some(m.spec().tier);
    let n = count(&|m, _| serving(m) && counted(m));
    let out = count(&|m, s| serving(m) && counted(m) && s == Standing::Ejected);
    let serves = |s: Standing| matches!(s, Standing::Healthy | Standing::Kept | Standing::Fallback);

    let mut broken = vec![];
    let mut must = |holds: bool, what: &str| {
        if !holds {
            broken.push(what.to_owned());
        }
    };
    must(members.len() == heart.members().len(), "every member has a standing");
    must(picture.ejected == out, "ejected counts those that stand ejected");
    must(picture.ejected <= picture.ejectable, "ejected is within the cap");
    let percent = usize::from(rules.max_unhealthy_percent);
    let one = rules.min_ejected == 1 && percent > 0 && out == 1;
    must(out * 100 <= percent * n || one, "the cap never rounds up");
    must(out == 0 || out < n, "the last member is never ejected");
    must(out == 0 || count(&|m, s| serving(m) && s == Standing::Healthy) > 0, "nobody is out where nobody is healthy");
    must(count(&|m, s| serves(s) && !active(m)) == 0, "nobody drained, disabled or of weight 0 serves");
    must(count(&|m, s| serves(s) && m.spec().key.address.is_none()) == 0, "nobody without an address serves");
    must(count(&|m, s| s == Standing::Healthy && m.verdict() != Verdict::Healthy) == 0, "healthy are healthy");
    must(count(&|m, s| matches!(s, Standing::Kept) && !m.proven()) == 0, "a newcomer that never passed is not kept");
    must(count(&|m, _| m.verdict() == Verdict::Healthy && !m.proven()) == 0, "who is healthy is proven");
    must(picture.in_rotation <= picture.total, "the rotation is of the members");
    let rotation =
        matches!(picture.mode, Mode::Down | Mode::Waiting) || picture.in_rotation == count(&|_, s| serves(s));
    must(rotation, "the rotation is those who serve");
    let anybody = count(&|m, _| active(m) && m.spec().key.address.is_some() && m.verdict() == Verdict::Healthy) > 0;
    must(picture.mode != Mode::Fallback || !anybody, "no fallback while somebody is healthy");
    must(
        picture.in_rotation > 0 || matches!(picture.mode, Mode::Down | Mode::Waiting),
        "a pool that serves has somebody",
    );
    must((picture.mode == Mode::Fallback) == (count(&|_, s| s == Standing::Fallback) > 0), "fallback is one thing");
    for (at, member) in heart.members().iter().enumerate() {
        must(heart.index_of(member.id()) == Some(at), "a member is found by its id");
        must(heart.member(member.id()).map(Member::id) == Some(member.id()), "a member is looked up by its id");
    }
    if broken.is_empty() { Ok(()) } else { Err(broken) }
}
