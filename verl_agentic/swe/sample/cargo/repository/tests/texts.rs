use quill::texts::{slug, wrap};

#[test]
fn slug_joins_words() {
    assert_eq!(slug("Alpha, Beta!", '-', 100), "alpha-beta");
}

#[test]
fn slug_that_is_cut_ends_with_no_separator() {
    assert_eq!(slug("alpha beta", '-', 6), "alpha");
}

#[test]
fn wrap_fills_lines() {
    assert_eq!(wrap("aaa bbb ccc", 7), vec!["aaa bbb", "ccc"]);
}

#[test]
fn wrap_keeps_a_long_word() {
    assert_eq!(wrap("a bbbbbbbb c", 4), vec!["a", "bbbbbbbb", "c"]);
}
