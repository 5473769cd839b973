//! The application, without a simulation around them.

use core::time::Duration;

use annulus_sim::App;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn fa_21_only_finished_messages_count() {
    let mut app = App::new(2, ms(100));
    let taken: Vec<bool> = (0..4).map(|thing| app.arrive(ms(thing), thing)).collect();
    assert_eq!((taken, app.missed), (vec![true, true, false, false], 2));
    app.run(ms(99));
    assert!(app.take_finished().is_empty());
    app.run(ms(100));
    assert_eq!(app.take_finished(), [0]);
    app.stop(ms(150), true);
    app.run(ms(9_000));
    assert!(app.take_finished().is_empty(), "it is stopped");
    app.stop(ms(9_000), false);
    app.run(ms(9_100));
    assert_eq!(app.take_finished(), [1]);
}

#[test]
fn fa_21_an_application_that_is_told_to_go_on_loses_no_work() {
    let mut app = App::new(2, ms(20));
    app.arrive(ms(0), 0);
    for tick in 0..=2 {
        app.stop(ms(10 * tick), false);
    }
    assert_eq!(app.take_finished(), [0]);
}
