// base/cpu_info.h: names from files like /proc/cpuinfo, with and without the line that gives one.
#define _GNU_SOURCE // sched_getaffinity
#include "md_test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cpu_info.h"

static void expect_name(const char *text, const char *expected) {
    char path[] = "/tmp/cpuinfo-XXXXXX", name[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    const char *found = md_cpu_name_from(path, name, sizeof name);
    unlink(path);
    assert_string_equal(found, expected);
}

static void names(void **state) {
    (void)state;
    struct utsname system;
    char expected[256], name[128], small[8];
    assert_int_equal(uname(&system), 0);
    expect_name("processor\t: 0\nmodel name\t: AMD EPYC 9554\nmodel name\t: other\n", "AMD EPYC 9554");
    expect_name("model name without a colon\nmodel name : x", "x");
    // aarch64: numbers only; a name that is empty counts as none
    snprintf(expected, sizeof expected, "%s processor (implementer 0x41, part 0xd0c)", system.machine);
    expect_name("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n",
                expected);
    expect_name("model name\t: \nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", expected);
    snprintf(expected, sizeof expected, "%s processor", system.machine);
    expect_name("", expected);
    expect_name("CPU implementer\t: 0x41\n", expected);
    assert_string_equal(md_cpu_name_from("/nowhere/at/all", name, sizeof name), expected);
    assert_string_equal(md_cpu_name_from(NULL, name, sizeof name), expected);
    assert_int_equal(strlen(md_cpu_name_from(NULL, small, sizeof small)), sizeof small - 1); // cut, not overrun
    assert_true(md_cpu_name(name, sizeof name)[0]);
}

static void counts_what_may_be_used(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(md_cpu_count(), CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(md_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(counts_what_may_be_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
