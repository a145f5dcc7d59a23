use super::*;
use crate::alert::conditions::Subject;
use crate::config::Occasion;

const ZERO: Duration = Duration::ZERO;

const REFUSED: Sent = Sent::Missed { may_be_known: false, is_for_good: false };
const UNCLEAR: Sent = Sent::Missed { may_be_known: true, is_for_good: false };
const FOR_GOOD: Sent = Sent::Missed { may_be_known: false, is_for_good: true };

fn key(pool: &str) -> Key {
    (Occasion::Fallback, Subject::Pool(pool.to_owned()))
}

fn letter(pool: &str, episode: u32, phase: Phase) -> Letter {
    let id = format!("{pool}{episode} {}", phase.as_str());
    Letter { id: id.clone(), key: key(pool), phase, about: id, text: Bytes::new() }
}

/// Notes these: `+a1` has begun, `-a1` is over.
fn noted(ledger: &mut Ledger, all: &str) {
    for one in all.split_whitespace() {
        let phase = if one.starts_with('+') { Phase::Firing } else { Phase::Resolved };
        assert!(ledger.note(ZERO, letter(&one[1..2], one[2..].parse().unwrap(), phase)), "{one}");
    }
}

/// Sends what is owed, each as `send` has it, until nothing is, and says what.
fn drained_by(ledger: &mut Ledger, now: Duration, send: impl Fn(&Letter) -> Sent) -> Vec<String> {
    let one = |ledger: &mut Ledger| {
        let Due { letter, .. } = ledger.next(now)?;
        ledger.done(now, &letter.key, send(&letter));
        Some(letter.id)
    };
    std::iter::from_fn(|| one(ledger)).collect()
}

fn drained(ledger: &mut Ledger, now: Duration, sent: Sent) -> Vec<String> {
    drained_by(ledger, now, |_| sent)
}

fn given_up(ledger: &mut Ledger) -> Vec<String> {
    ledger.given_up().into_iter().map(|one| one.about).collect()
}

#[test]
fn what_is_over_before_it_was_told_needs_neither_and_what_was_told_is_told_to_be_over() {
    let rows: [(&str, &str, &[&str]); 5] = [
        ("", "+a1 +b2", &["a1 firing", "b2 firing"]),
        ("", "+a1 -a1 +b2", &["b2 firing"]),
        ("+a1", "-a1", &["a1 resolved"]),
        ("+a1 +b2", "-b2 -a1", &["b2 resolved", "a1 resolved"]),
        ("+a1", "-a1 +a2 -a2 +a3", &["a1 resolved", "a3 firing"]),
    ];
    for (before, then, told) in rows {
        let mut ledger = Ledger::default();
        noted(&mut ledger, before);
        drained(&mut ledger, ZERO, Sent::Taken);
        noted(&mut ledger, then);
        assert_eq!(ledger.waiting(), told.len() as u64, "{before}, {then}");
        assert_eq!(drained(&mut ledger, ZERO, Sent::Taken), told, "{before}, {then}");
        assert_eq!((ledger.waiting(), ledger.next_at()), (0, None));
    }
}

#[test]
fn what_ends_while_its_beginning_is_under_way_is_told_where_that_may_have_been_taken() {
    for (sent, told) in [(Sent::Taken, 1), (UNCLEAR, 1), (REFUSED, 0)] {
        let mut ledger = Ledger::default();
        noted(&mut ledger, "+a1");
        assert_eq!(ledger.next(ZERO).unwrap().letter.id, "a1 firing");
        noted(&mut ledger, "-a1");
        assert_eq!((ledger.waiting(), ledger.next(ZERO)), (2, None));
        ledger.done(ZERO, &key("a"), sent);
        assert_eq!(drained(&mut ledger, ZERO, Sent::Taken).len(), told, "{sent:?}");
        assert!(ledger.accounts.is_empty(), "{sent:?}");
    }
    // An earlier try may have been taken, whatever becomes of this one.
    let mut ledger = Ledger::default();
    noted(&mut ledger, "+a1");
    drained(&mut ledger, ZERO, UNCLEAR);
    assert_eq!(ledger.next(AGAIN).unwrap().letter.id, "a1 firing");
    noted(&mut ledger, "-a1");
    ledger.done(AGAIN, &key("a"), REFUSED);
    assert_eq!(drained(&mut ledger, AGAIN, Sent::Taken), ["a1 resolved"]);
}

#[test]
fn what_is_not_taken_is_tried_again_while_it_lasts() {
    let mut ledger = Ledger::default();
    noted(&mut ledger, "+a1");
    assert_eq!(drained(&mut ledger, ZERO, FOR_GOOD), ["a1 firing"], "while it lasts somebody may mend it");
    assert_eq!((ledger.waiting(), ledger.next_at()), (1, Some(AGAIN)));
    assert_eq!(drained(&mut ledger, AGAIN, REFUSED), ["a1 firing"]);
    // Another one is taken, so somebody listens.
    noted(&mut ledger, "+b2");
    assert_eq!(drained(&mut ledger, AGAIN, Sent::Taken), ["b2 firing", "a1 firing"]);
    noted(&mut ledger, "+c3");
    drained(&mut ledger, ZERO, REFUSED);
    noted(&mut ledger, "-c3 +d4");
    assert_eq!(drained(&mut ledger, ZERO, UNCLEAR), ["d4 firing"]);
    noted(&mut ledger, "-d4");
    assert_eq!(drained(&mut ledger, ZERO, REFUSED), ["d4 resolved"]);
    assert_eq!(drained(&mut ledger, LONGEST, REFUSED), ["d4 resolved"]);
    assert_eq!((given_up(&mut ledger), ledger.waiting()), (vec!["d4 resolved".to_owned()], 0));
}

#[test]
fn an_end_that_is_not_taken_keeps_no_beginning_and_goes_with_the_next_end() {
    let told = || {
        let mut ledger = Ledger::default();
        noted(&mut ledger, "+a1");
        drained(&mut ledger, ZERO, Sent::Taken);
        ledger
    };
    let refuse_ends = |sent| move |letter: &Letter| if letter.phase == Phase::Firing { Sent::Taken } else { sent };
    let mut ledger = told();
    noted(&mut ledger, "-a1");
    assert_eq!(drained(&mut ledger, ZERO, FOR_GOOD), ["a1 resolved"]);
    assert_eq!((given_up(&mut ledger), ledger.waiting()), (vec!["a1 resolved".to_owned()], 0), "it is over");
    for sent in [REFUSED, UNCLEAR] {
        let mut ledger = told();
        noted(&mut ledger, "-a1 +a2");
        assert_eq!(drained_by(&mut ledger, ZERO, refuse_ends(sent)), ["a1 resolved", "a2 firing"]);
        // By its key it would be the end of the second.
        assert_eq!(
            (drained(&mut ledger, LONGEST, Sent::Taken).len(), ledger.next_at(), ledger.waiting()),
            (0, None, 1)
        );
        noted(&mut ledger, "-a2");
        assert_eq!(drained(&mut ledger, ZERO, Sent::Taken), ["a1 resolved", "a2 resolved"]);
    }
    // Nor is it sent once the second may be known.
    let mut ledger = told();
    noted(&mut ledger, "-a1 +a2");
    assert_eq!(drained(&mut ledger, ZERO, UNCLEAR), ["a1 resolved", "a2 firing"]);
    assert_eq!(drained(&mut ledger, AGAIN, Sent::Taken), ["a2 firing"]);
    // There is a limit.
    let mut ledger = told();
    for episode in 2..=MOST_ENDS as u32 + 1 {
        noted(&mut ledger, &format!("-a{} +a{episode}", episode - 1));
        drained_by(&mut ledger, ZERO, refuse_ends(REFUSED));
    }
    assert_eq!((ledger.waiting(), given_up(&mut ledger).len()), (MOST_ENDS as u64, 0));
    noted(&mut ledger, "-a9");
    assert_eq!((ledger.waiting(), given_up(&mut ledger)), (MOST_ENDS as u64, vec!["a1 resolved".to_owned()]));
}

#[test]
fn news_go_before_what_was_refused_and_of_that_one_is_tried_for_each_that_is_taken() {
    let mut ledger = Ledger::default();
    noted(&mut ledger, "+a1 +b1 +c1 +d1");
    drained(&mut ledger, ZERO, REFUSED);
    ledger.hasten();
    noted(&mut ledger, "+e1 +f1");
    let listens = |letter: &Letter| if "ef".contains(&letter.id[..1]) { Sent::Taken } else { REFUSED };
    let order = drained_by(&mut ledger, ZERO, listens);
    assert_eq!(order, ["e1", "f1", "a1", "b1", "c1", "d1"].map(|id| format!("{id} firing")));
    noted(&mut ledger, "+g1");
    let listens = |letter: &Letter| if letter.id.starts_with('g') { Sent::Taken } else { REFUSED };
    assert_eq!(drained_by(&mut ledger, ZERO, listens), ["g1 firing", "a1 firing"]);
    noted(&mut ledger, "-g1");
    assert_eq!(drained_by(&mut ledger, ZERO, listens), ["g1 resolved", "b1 firing"], "the next in turn");
    noted(&mut ledger, "+h1");
    let order = drained(&mut ledger, ZERO, Sent::Taken);
    assert_eq!(
        order,
        ["h1", "c1", "d1", "a1", "b1"].map(|id| format!("{id} firing")),
        "each that is taken has the next"
    );
    // What was refused is known to be.
    noted(&mut ledger, "+i1");
    assert!(!ledger.next(ZERO).unwrap().was_tried);
    ledger.done(ZERO, &key("i"), REFUSED);
    assert!(ledger.next(AGAIN).unwrap().was_tried);
}

#[test]
fn of_one_that_is_taken_out_nothing_is_owed_but_what_is_under_way() {
    let mut ledger = Ledger::default();
    noted(&mut ledger, "+a1 +b1");
    assert_eq!(ledger.next(ZERO).unwrap().letter.id, "a1 firing");
    noted(&mut ledger, "-a1 +c1");
    let mut left = ledger.abandon();
    left.sort();
    assert_eq!((left, ledger.waiting()), (["a1 resolved", "b1 firing", "c1 firing"].map(str::to_owned).to_vec(), 1));
    ledger.done(ZERO, &key("a"), Sent::Taken);
    assert!(ledger.accounts.is_empty());
}

#[test]
fn hundreds_at_once_are_all_told_and_there_is_a_limit() {
    let mut ledger = Ledger::default();
    let name = |number: usize| format!("p{number}");
    for number in 0..ROOM {
        assert!(ledger.note(ZERO, letter(&name(number), 1, Phase::Firing)));
    }
    assert!(!ledger.note(ZERO, letter("more", 1, Phase::Firing)));
    assert!(ledger.note(ZERO, letter("more", 1, Phase::Resolved)));
    for number in 0..ROOM {
        assert!(ledger.note(ZERO, letter(&name(number), 1, Phase::Resolved)));
    }
    assert!(ledger.accounts.is_empty());
}

/// Whatever is heard and however it is sent: nothing ends that nobody may know of, and of what was taken the end is, or is
/// owed or given up.
#[test]
fn whatever_happens_who_was_told_is_told_that_it_is_over() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut ledger, mut now) = (Ledger::default(), ZERO);
        let (mut open, mut episodes) = ([false; 3], [0; 3]);
        let (mut may_know, mut taken): (BTreeSet<String>, BTreeSet<String>) = Default::default();
        let mut under_way: Vec<Letter> = Vec::new();
        let names = ["a", "b", "c"];
        for _ in 0..400 {
            let one = random.usize(..3);
            match random.u8(..10) {
                0..3 => {
                    let phase = if open[one] { Phase::Resolved } else { Phase::Firing };
                    episodes[one] += u32::from(!open[one]);
                    open[one] = !open[one];
                    ledger.note(now, letter(names[one], episodes[one], phase));
                }
                3..6 => {
                    if let Some(due) = ledger.next(now) {
                        let Letter { id, phase, .. } = &due.letter;
                        let beginning = id.replace("resolved", "firing");
                        assert!(*phase == Phase::Firing || may_know.contains(&beginning), "{seed}: {id}");
                        assert!(!taken.contains(id), "{seed}: {id} again");
                        under_way.push(due.letter);
                    }
                }
                6..9 if !under_way.is_empty() => {
                    let letter = under_way.swap_remove(random.usize(..under_way.len()));
                    let all = [Sent::Taken, REFUSED, UNCLEAR, FOR_GOOD];
                    let sent = all[random.usize(..4)];
                    if !matches!(sent, Sent::Missed { may_be_known: false, .. }) {
                        may_know.insert(letter.id.clone());
                    }
                    if sent == Sent::Taken {
                        taken.insert(letter.id.clone());
                    }
                    ledger.done(now, &letter.key, sent);
                }
                _ => now += Duration::from_secs(random.u64(..200)),
            }
        }
        under_way.into_iter().for_each(|letter| ledger.done(now, &letter.key, REFUSED));
        for (one, name) in names.iter().enumerate().filter(|(one, _)| open[*one]) {
            ledger.note(now, letter(name, episodes[one], Phase::Resolved));
        }
        ledger.hasten();
        let over: BTreeSet<String> = drained(&mut ledger, now, Sent::Taken).into_iter().chain(taken).collect();
        let over: BTreeSet<String> = over.into_iter().chain(given_up(&mut ledger)).collect();
        for beginning in &may_know {
            let end = beginning.replace("firing", "resolved");
            assert!(over.contains(&end), "{seed}: {beginning} is never over");
        }
        assert!(ledger.accounts.is_empty(), "{seed}");
    }
}
