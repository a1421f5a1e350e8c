use quill::intervals::merge;

#[test]
fn merge_of_separate_intervals() {
    assert_eq!(merge(&[(4, 5), (1, 2)]), vec![(1, 2), (4, 5)]);
}

#[test]
fn merge_of_an_interval_inside_another() {
    assert_eq!(merge(&[(1, 9), (2, 3)]), vec![(1, 9)]);
}

#[test]
fn merge_of_intervals_that_touch() {
    assert_eq!(merge(&[(2, 3), (1, 2)]), vec![(1, 3)]);
}
