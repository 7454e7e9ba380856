from seedflood.host.evaluation_schedule import EvaluationSchedule


def taken(schedule, steps, step_seconds, evaluation_seconds, local_steps=1):
    """The steps at which a host evaluates that begins with an evaluation."""
    schedule.took(evaluation_seconds, 0.0)
    found = []
    for step in range(local_steps, steps + 1, local_steps):
        if schedule.is_due(step, step * step_seconds):
            found.append(step)
            schedule.took(evaluation_seconds, step * step_seconds)
    return found


def test_a_run_is_evaluated_about_twenty_times():
    assert taken(EvaluationSchedule(None, 5000), 5000, 0.1, 1.0) == list(range(250, 5000, 250))
    assert taken(EvaluationSchedule(None, 7), 7, 10.0, 0.1) == [1, 2, 3, 4, 5, 6]


def test_evaluations_take_a_twentieth_of_the_time_at_most():
    for evaluation_seconds in (1.3, 2.0, 7.0, 30.0):
        found = taken(EvaluationSchedule(None, 5000), 5000, 0.1, evaluation_seconds)
        assert len(found) * evaluation_seconds <= 0.05 * 5000 * 0.1
        assert len(found) >= 0.05 * 5000 * 0.1 / evaluation_seconds / 2 - 1
    assert taken(EvaluationSchedule(None, 400), 400, 0.1, 3.0) == []


def test_hosts_of_unlike_speed_evaluate_at_the_same_steps():
    slow, fast = (taken(EvaluationSchedule(None, 5000), 5000, seconds, 7.0) for seconds in (0.3, 0.1))
    assert set(fast) < set(slow)


def test_what_the_operator_says_counts_whatever_it_costs():
    assert taken(EvaluationSchedule(100, 400), 400, 0.1, 1e6) == [100, 200, 300]
    assert taken(EvaluationSchedule(30, 100), 100, 0.1, 1.0, local_steps=20) == [40, 60]
    assert taken(EvaluationSchedule(0, 400), 400, 0.1, 1.0) == []


def test_a_restarted_host_evaluates_soon():
    assert EvaluationSchedule(None, 400).is_due(137, 0.0)
