from tests.support.fake_clock import fake_clock as fake_clock
