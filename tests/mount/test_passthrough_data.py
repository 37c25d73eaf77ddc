"""What is tested of data and privileges on other mounts, where the kernel reads and writes by itself for everybody."""
import pytest

from test_attributes import (test_handle_of_an_unlinked_file, test_privileges_are_cleared_as_on_the_store,
                             test_root_without_fsetid_loses_privileges_too, test_truncate,
                             test_truncate_through_a_handle_that_may_write_what_is_read_only)
from test_data import (test_append_flag_may_change, test_appends_of_processes_do_not_overwrite, test_beyond_4_gib,
                       test_copy_between_the_store_and_the_mount, test_copy_file_range, test_direct, test_fallocate,
                       test_full_store, test_mapping, test_mapping_of_a_file_opened_to_append, test_open_flags,
                       test_reading_and_writing_anywhere, test_seek_to_data_and_holes, test_sizes, test_sync,
                       test_two_processes_share_a_mapping, test_vectors, test_write_only_file_is_no_reason_to_read)
from twins import make_twins


@pytest.fixture
def store(new_store):
    return new_store("ext4")


@pytest.fixture
def mount(mount):
    def make(*arguments, **options):
        made = mount(*arguments, **options)
        made.rule("change default passthrough")
        return made
    return make


@pytest.fixture(params=["root", "user"])  # a mount of an ordinary user's has no passthrough
def twins(request, store, mount):
    return make_twins(request.param, store, mount)
