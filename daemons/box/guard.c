/* The guard: memory of the kernel that no cgroup counts.
 *
 * The kernel counts most of what it keeps for a program (page tables, stacks, pipes, inodes) for
 * the program's cgroup, which is limited. Some it does not: it never did, or forgot to, and nobody
 * knows the whole list. What is known of it is refused or bounded elsewhere (filter.c, inside.c). For
 * the rest init looks, while a run lasts, at what the whole machine's kernel holds and cannot give
 * back. A run ends when that growth and what is counted for it are more than its limit together; and
 * while it has taken some, its cgroup may have that much less, so that what is counted cannot come in
 * one leap on top.
 *
 * No list of counters names all that the kernel holds. So it is found by exclusion: every page that
 * was allocated and not freed, but for those of programs and files (which are on the kernel's lists of
 * pages) and slab that it gives back when others need it. The number of free pages would not do: cores
 * keep free pages of their own, up to hundreds of MB, which belong to neither. What this misses is
 * memory that the kernel takes from the free pages to make room in one piece (compaction), which it
 * counts as freed later only.
 *
 * Such a sum shows more than is held at times. Pages on their way from a program to the free ones count
 * for nobody, and a core frees up to 62 MB of huge pages in one go: so the least of some samples is
 * taken. A core that clears a huge page has that as well: so the margin grows with the cores that the run
 * uses. And stacks of threads that ended are not counted any more, but freed only when all cores have
 * looked away (RCU): where as many of the run have ended that it could be these, it is waited until that
 * has happened, and what is still there then is believed (guard_check). Stopping the run meanwhile
 * would be no help: calls that wait would return, and free what they hold.
 *
 * Whose the growth is cannot be told for certain. What speaks for others is left out: what the
 * kernel counts for the runs in other slots, and what could not have been taken in the processor time
 * that the run used. When the run has been ended, and all that it had is gone, as much memory must come
 * back, and nobody may take as much again at once; else it was somebody else's (ANSWER_UNSURE). And the
 * client repeats the run with nobody beside it before it believes it (ANSWER_UNCOUNTED).
 *
 * The same where the machine is nearly out of memory: then a run that took uncounted memory ends,
 * before the kernel looks for somebody to kill, who would be another. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MIB = 1 << 20,
    /* Allowed beyond the limit: what other daemons of the machine take and give back meanwhile. */
    MARGIN = 8 * MIB,
    /* Each core counts up to 64 pages ahead for a cgroup. */
    AHEAD = 256 * 1024,
    /* What we expect of a core, which decides when to look again ... */
    EXPECTED_MIB_S = 1024,
    /* ... and the most that could be: pages can be had at this rate if nobody touches them. */
    MOST_BYTES_US = 8192,
    TICK_NS = 10000000,
    LEAST_PAUSE_NS = 1000000,
    MOST_PAUSE_NS = 10000000,
    HUGE_PAGE = 2 * MIB,
    /* The kernel's stack of a thread that ended, with what belongs to it; and how long it may last. */
    STACK = 24 * 1024,
    STACKS_NS = 300000000,
    MOST_CHECK_NS = 50000000,
};

/* What makes a page the kernel's own, or not; a name that ends in '_' stands for all that begin so. */
static const struct {
    const char *name;
    int sign;
} counters[] = {
    {"pgalloc_", 1},
    {"pgfree", -1},
    {"nr_inactive_anon", -1},
    {"nr_active_anon", -1},
    {"nr_inactive_file", -1},
    {"nr_active_file", -1},
    {"nr_unevictable", -1},
    {"nr_isolated_anon", -1}, /* between two of the lists */
    {"nr_isolated_file", -1},
    {"nr_slab_reclaimable", -1},
    {"nr_kernel_misc_reclaimable", -1},
    {"nr_zspages", -1}, /* of programs, compressed */
};

static int sign_of(const char *line)
{
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        size_t length = strlen(counters[i].name);
        if (strncmp(line, counters[i].name, length) == 0 &&
            (counters[i].name[length - 1] == '_' || line[length] == ' '))
            return counters[i].sign;
    }
    return 0;
}

/* The pages that the kernel has for itself, but for a number that never changes. */
static bool read_pages(int vmstat, int64_t *pages)
{
    static char text[32768];
    size_t length = 0;
    ssize_t got;

    /* The kernel hands it out by the page. */
    while ((got = pread(vmstat, text + length, sizeof text - 1 - length, (off_t)length)) > 0)
        length += (size_t)got;
    text[length] = 0;
    *pages = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        int sign = *line == 'p' || *line == 'n' ? sign_of(line) : 0;
        if (sign != 0)
            *pages += sign * (int64_t)strtoull(strchr(line, ' '), NULL, 10);
    }
    return got == 0 && strstr(text, "\npgfree ");
}

int guard_open(struct guard_machine *machine, struct fault *fault)
{
    const uint64_t least = 32 * MIB, most = 512 * MIB;
    char text[4096];
    int64_t pages;

    machine->meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (machine->meminfo < 0 || !read_text(machine->meminfo, text, sizeof text))
        return fault_errno(fault, "cannot read /proc/meminfo");
    machine->loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (machine->loadavg < 0)
        return fault_errno(fault, "cannot read /proc/loadavg");
    machine->vmstat = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
    if (machine->vmstat < 0)
        return fault_errno(fault, "cannot read /proc/vmstat");
    if (!read_pages(machine->vmstat, &pages))
        return fault_say(fault, "the kernel does not count its pages in /proc/vmstat");
    machine->reserve_bytes = text_key(text, "MemTotal:") * 1024 / 32;
    if (machine->reserve_bytes < least)
        machine->reserve_bytes = least;
    if (machine->reserve_bytes > most)
        machine->reserve_bytes = most;
    return 0;
}

/* What the machine's kernel holds, without what it counts for others' runs. */
struct level {
    int64_t bytes;
    int64_t counted; /* of it, for this run */
};

static bool read_level(const struct guard *guard, const struct guard_machine *machine,
                       const struct cgroup_home *home, struct level *level)
{
    int64_t pages;

    if (!read_pages(machine->vmstat, &pages))
        return false;
    uint64_t all = cgroup_kernel_bytes(home, home->kernel);
    uint64_t own = cgroup_kernel_bytes(home, guard->counted);
    level->bytes = pages * sysconf(_SC_PAGESIZE) - (all > own ? (int64_t)(all - own) : 0);
    level->counted = (int64_t)own;
    return true;
}

static uint64_t available_bytes(const struct guard_machine *machine)
{
    char text[4096];
    return read_text(machine->meminfo, text, sizeof text) ? text_key(text, "MemAvailable:") * 1024
                                                          : UINT64_MAX;
}

static void note_growth(struct guard *guard, const struct level *level, uint64_t cpu_us)
{
    uint64_t now = now_ns();
    int64_t own = level->counted - guard->own;
    int64_t possible = (int64_t)(cpu_us - guard->cpu_us) * MOST_BYTES_US;

    /* What is counted for the run is its own for certain. */
    guard->own += own;
    guard->level += own;
    guard->grown += own;
    int64_t change = guard->looked ? level->bytes - guard->level : 0;
    /* The processor time is told in steps, of a tick at most: perhaps it was used. */
    if (change > possible && now < guard->noted_ns + TICK_NS)
        return;
    guard->grown += change < possible ? change : possible;
    if (guard->grown < 0) /* somebody else gave back what there was before */
        guard->grown = 0;
    guard->level = level->bytes;
    if (guard->looked && now > guard->noted_ns + TICK_NS / 2)
        guard->busy = (int64_t)((cpu_us - guard->cpu_us) * 1000 / (now - guard->noted_ns)) + 1;
    guard->cpu_us = cpu_us;
    guard->noted_ns = now;
    guard->looked = true;
}

static int64_t margin_of(const struct guard *guard)
{
    int64_t busy = guard->busy > 2 ? guard->busy - 2 : 0; /* two are in MARGIN */
    return MARGIN + (int64_t)guard->cpus * AHEAD + busy * HUGE_PAGE;
}

/* What the run would have that is not counted, if this level were believed. */
static int64_t estimate(const struct guard *guard, const struct level *level)
{
    return guard->looked ? guard->grown + level->bytes - level->counted - guard->level : 0;
}

static bool read_least(const struct guard *guard, const struct guard_machine *machine,
                       const struct cgroup_home *home, struct level *least)
{
    enum { TIMES = 8 }; /* a quarter of a millisecond: what frees 62 MB takes about 50 us */
    struct level now;

    if (!read_level(guard, machine, home, least))
        return false;
    /* Without a pause: among a thousand threads of the run our turn would come much later. */
    for (int i = 1; i < TIMES && estimate(guard, least) > margin_of(guard); i++)
        if (read_level(guard, machine, home, &now) &&
            now.bytes - now.counted < least->bytes - least->counted)
            *least = now;
    return true;
}

/* The last pid that was given to a process or thread of the run. */
static int64_t read_last_pid(const struct guard_machine *machine)
{
    char text[128];
    const char *last;

    if (!read_text(machine->loadavg, text, sizeof text) || !(last = strrchr(text, ' ')))
        return 0;
    return strtoll(last, NULL, 10);
}

/* How many processes and threads of the run have ended: those that were given a pid, less those that
 * there are. Many may begin between the two looks. */
static int64_t read_ended(const struct guard_machine *machine, const struct cgroup *group)
{
    enum { TRIES = 4, FEW = 8 };
    int64_t ended = 0, last = read_last_pid(machine);

    for (int i = 0; i < TRIES; i++) {
        int64_t before = last, alive = (int64_t)cgroup_processes(group);
        last = read_last_pid(machine);
        ended = before - alive;
        if (last - before <= FEW)
            break;
    }
    return ended > 0 ? ended : 0;
}

/* Pids that begin anew are taken for many. */
static int64_t stacks_bytes(int64_t before, int64_t after)
{
    return (after >= before ? after - before : INT32_MAX) * STACK;
}

/* What stacks of ended threads may account for, by the numbers of some looks. */
static int64_t note_stacks(struct guard *guard, const struct guard_machine *machine,
                           const struct cgroup *group)
{
    const unsigned places = sizeof guard->ended / sizeof *guard->ended;
    uint64_t now = now_ns();
    int64_t ended = read_ended(machine, group);

    if (!guard->looked)
        for (unsigned i = 0; i < places; i++)
            guard->ended[i] = ended;
    if (now >= guard->ended_ns + STACKS_NS / (places - 1)) {
        guard->ended_ns = now;
        guard->ended_at = (guard->ended_at + 1) % places;
        guard->ended[guard->ended_at] = ended;
    }
    return stacks_bytes(guard->ended[(guard->ended_at + 1) % places], ended);
}

/* What the run holds that nobody counts, when the stacks that it let go of are free. */
static void guard_check(struct guard *guard, const struct guard_machine *machine,
                        const struct cgroup_home *home, const struct cgroup *group)
{
    uint64_t began = now_ns();
    int64_t seemed = guard->uncounted, held = INT64_MAX;
    struct level now, least = {0};

    do {
        int64_t before = read_ended(machine, group);
        /* Each returns when every core has looked away once more. */
        for (int i = 0; i < 2; i++)
            if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0)
                poll(NULL, 0, 10);
        if (!read_level(guard, machine, home, &now))
            continue;
        int64_t later = stacks_bytes(before, read_ended(machine, group));
        if (estimate(guard, &now) - later < held) {
            held = estimate(guard, &now) - later;
            least = now;
        }
    } while (held > margin_of(guard) && now_ns() < began + MOST_CHECK_NS);
    if (held < INT64_MAX) {
        note_growth(guard, &least, cgroup_cpu_us(home, group));
        guard->uncounted = guard->grown - least.counted;
        guard->held = held > margin_of(guard) ? held : 0;
        guard->seen_through = guard->held > 0 ? held + MARGIN / 4 : seemed + MARGIN / 2;
    }
    guard->checked_ns = now_ns();
    guard->check_took_ns = guard->checked_ns - began;
}

/* A run that hovers where it looks guilty and is not is not checked all the time. */
static bool should_check(const struct guard *guard, bool urgent)
{
    uint64_t pause = guard->check_took_ns * (urgent ? 1 : 4);
    return guard->uncounted > guard->seen_through || now_ns() >= guard->checked_ns + pause;
}

/* What is counted may only be what is left of the limit. Never below what is used: v1 would look for
 * pages to drop, for a tenth of a second, before it refuses, and v2 kill at once. */
static void lower_limit(struct guard *guard, const struct cgroup_home *home, struct cgroup *group,
                        uint64_t memory_bytes, uint64_t used_bytes)
{
    const int64_t step = MIB, margin = margin_of(guard);
    int64_t more = guard->held > margin ? guard->held - margin : 0;
    int64_t wanted = (int64_t)memory_bytes - more, least = (int64_t)used_bytes + MARGIN;

    wanted = wanted < least ? least : wanted;
    wanted = wanted > (int64_t)memory_bytes ? (int64_t)memory_bytes : wanted;
    int64_t change = wanted - (int64_t)group->memory_limit_bytes;
    if (change <= -step || (change > 0 && guard->lowered)) {
        cgroup_change_limit(home, group, (uint64_t)wanted);
        guard->lowered = group->memory_limit_bytes < memory_bytes;
    }
}

bool guard_look(struct guard *guard, const struct guard_machine *machine,
                const struct cgroup_home *home, struct cgroup *group, uint64_t memory_bytes,
                unsigned cpus, uint64_t *pause_ns)
{
    struct level level;

    *pause_ns = MOST_PAUSE_NS;
    if (!guard->looked) {
        guard->counted = cgroup_open_kernel(home, group);
        guard->cpus = cpus;
    }
    if (!read_least(guard, machine, home, &level))
        return true;
    int64_t stacks = note_stacks(guard, machine, group);
    note_growth(guard, &level, cgroup_cpu_us(home, group));
    guard->uncounted = guard->grown - level.counted;
    /* Files that were only read can be dropped, but to tell them apart takes longer. */
    uint64_t used = cgroup_memory_bytes(home, group, false);
    int64_t margin = margin_of(guard), most = (int64_t)memory_bytes + margin;
    bool over = guard->uncounted > margin && guard->uncounted + (int64_t)used > most;
    /* What is no reason to end yet is believed when it is seen twice. */
    guard->seen = guard->uncounted > margin ? guard->seen + 1 : 0;
    if (guard->uncounted <= margin) {
        guard->held = 0;
    } else {
        bool low = available_bytes(machine) < machine->reserve_bytes;
        if (stacks < MARGIN / 4) /* a few are in the margin */
            stacks = 0;
        if (guard->uncounted - stacks > margin)
            guard->held = over || guard->seen > 1 ? guard->uncounted - stacks : 0;
        else if (should_check(guard, low || over))
            guard_check(guard, machine, home, group);
        else if (guard->uncounted < guard->held)
            guard->held = guard->uncounted;
        if (guard->held > 0 && (low || guard->held + (int64_t)used > most)) {
            guard->taken = (uint64_t)guard->held + cgroup_memory_bytes(home, group, true);
            if (low || (int64_t)guard->taken > most)
                return false;
        }
    }
    lower_limit(guard, home, group, memory_bytes, used);
    int64_t uncounted = guard->uncounted > 0 ? guard->uncounted : 0;
    int64_t left = most - uncounted - (int64_t)used;
    if (left < margin - uncounted) /* what is counted may be dropped, but never be more */
        left = margin - uncounted;
    uint64_t until_ns = left < 0 ? 0 : (uint64_t)left * 1000 / MIB * 1000000 / EXPECTED_MIB_S / cpus;
    if (until_ns < MOST_PAUSE_NS)
        *pause_ns = until_ns;
    if (*pause_ns < LEAST_PAUSE_NS || guard->seen == 1)
        *pause_ns = LEAST_PAUSE_NS;
    return true;
}

/* What others take or give back meanwhile without being the likelier reason. */
static int64_t noise_bytes(const struct guard *guard)
{
    return guard->grown / 4 > MARGIN / 2 ? guard->grown / 4 : MARGIN / 2;
}

/* Whether somebody else takes memory, now that nothing of the run is left. */
static bool is_quiet(const struct guard *guard, const struct guard_machine *machine,
                     const struct cgroup_home *home)
{
    enum { PAUSE_MS = 10, TIMES = 30 };
    int64_t least = INT64_MAX;
    int high = 0;
    struct level now;

    for (int i = 0; i < TIMES; i++) {
        if (read_level(guard, machine, home, &now)) {
            if (now.bytes < least) /* the kernel still frees some */
                least = now.bytes;
            high = now.bytes > least + noise_bytes(guard) ? high + 1 : 0;
            if (high > 1) /* once may be pages on their way */
                return false;
        }
        poll(NULL, 0, PAUSE_MS);
    }
    return true;
}

bool guard_settle(const struct guard *guard, const struct guard_machine *machine,
                  const struct cgroup_home *home)
{
    enum { PAUSE_MS = 5, TIMES = 200 };
    struct level now;

    /* The kernel frees some of it a moment later. */
    for (int i = 0; i < TIMES; i++) {
        if (read_level(guard, machine, home, &now) &&
            guard->level - now.bytes >= guard->grown - noise_bytes(guard))
            return is_quiet(guard, machine, home);
        poll(NULL, 0, PAUSE_MS);
    }
    return false;
}

void guard_close(struct guard *guard)
{
    if (guard->looked && guard->counted >= 0)
        close(guard->counted);
}
