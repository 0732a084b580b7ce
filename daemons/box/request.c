/* The messages a slot takes: parsed without side effects, so that they can be
 * fuzzed. Everything is bounded and checked before it is used; the client is
 * our own executor, but it runs without privileges and we run with them. */
#include "box.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The next NUL-terminated string before `end`, or NULL if there is none. */
static const char *take_string(const char **at, const char *end)
{
    const char *start = *at;
    const char *stop = memchr(start, 0, (size_t)(end - start));
    if (!stop)
        return NULL;
    *at = stop + 1;
    return start;
}

static int check_run(const struct message_head *head, struct fault *fault)
{
    /* Far above anything sensible, and low enough that no sum overflows. */
    const uint64_t most_us = 1000ULL * 3600 * 1000000, most_bytes = 1ULL << 46;

    if (head->flags & ~(uint32_t)RUN_FLAGS_ALL)
        return fault_say(fault, "request: unknown flags %#x", head->flags);
    if (head->argc < 1 || head->argc > ARGUMENTS_MAX)
        return fault_say(fault, "request: %u arguments", head->argc);
    if (head->envc > ARGUMENTS_MAX)
        return fault_say(fault, "request: %u variables", head->envc);
    if (!head->cpu_us || head->cpu_us > most_us || !head->wall_us || head->wall_us > most_us)
        return fault_say(fault, "request: a time limit is out of range");
    if (!head->memory_bytes || head->memory_bytes > most_bytes)
        return fault_say(fault, "request: the memory limit is out of range");
    if (head->output_bytes > most_bytes || head->disk_bytes > most_bytes)
        return fault_say(fault, "request: a size limit is out of range");
    if (head->processes < 1 || head->processes > 1000000)
        return fault_say(fault, "request: the process limit is out of range");
    if (head->files < 1 || head->files > FILES_MAX)
        return fault_say(fault, "request: the limit of files is out of range");
    return 0;
}

int request_parse(struct request *request, const char *bytes, size_t length, struct fault *fault)
{
    struct message_head *head = &request->head;

    if (length < sizeof *head)
        return fault_say(fault, "request: only %zu bytes", length);
    if (length > MESSAGE_MAX_BYTES)
        return fault_say(fault, "request: %zu bytes", length);
    memcpy(head, bytes, sizeof *head);
    if (memcmp(head->magic, "OJB2", 4) != 0)
        return fault_say(fault, "request: not of this version");

    const char *at = bytes + sizeof *head, *end = bytes + length;
    request->cwd = NULL;
    request->argv[0] = NULL;
    request->envp[0] = NULL;
    switch (head->kind) {
    case MESSAGE_CANCEL:
    case MESSAGE_FORGET:
        break;
    case MESSAGE_RUN:
        if (check_run(head, fault) < 0)
            return -1;
        request->cwd = take_string(&at, end);
        if (!request->cwd || request->cwd[0] != '/')
            return fault_say(fault, "request: no absolute working directory");
        for (uint32_t i = 0; i < head->argc; i++)
            if (!(request->argv[i] = take_string(&at, end)))
                return fault_say(fault, "request: argument %u is missing", i);
        request->argv[head->argc] = NULL;
        if (!request->argv[0][0])
            return fault_say(fault, "request: the command is empty");
        for (uint32_t i = 0; i < head->envc; i++)
            if (!(request->envp[i] = take_string(&at, end)))
                return fault_say(fault, "request: variable %u is missing", i);
        request->envp[head->envc] = NULL;
        break;
    default:
        return fault_say(fault, "request: unknown kind %u", head->kind);
    }
    if (at != end)
        return fault_say(fault, "request: %zu bytes too many", (size_t)(end - at));
    return 0;
}

int request_descriptors(const struct message_head *head)
{
    if (head->kind != MESSAGE_RUN)
        return 0;
    return head->flags & RUN_DATA ? 5 : 4;
}

/* A number and its unit; the units come as pairs in `names` and `factors`. */
static bool parse_quantity(const char *text, const char *const names[], const uint64_t factors[],
                           uint64_t *value)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *unit;
    unsigned long long number = strtoull(text, &unit, 10);
    for (int i = 0; names[i]; i++)
        if (strcasecmp(unit, names[i]) == 0) {
            if (number > UINT64_MAX / 2 / factors[i])
                return false;
            *value = number * factors[i];
            return true;
        }
    return false;
}

bool parse_duration(const char *text, uint64_t *microseconds)
{
    static const char *const names[] = {"s", "ms", "us", "m", "", NULL};
    static const uint64_t factors[] = {1000000, 1000, 1, 60000000, 1000000};
    return parse_quantity(text, names, factors, microseconds);
}

bool parse_size(const char *text, uint64_t *bytes)
{
    static const char *const names[] = {"", "k", "m", "g", "kib", "mib", "gib", NULL};
    enum { k = 1024 };
    static const uint64_t factors[] = {1, k, k * k, k * k * k, k, k * k, k * k * k};
    return parse_quantity(text, names, factors, bytes);
}

const char *limit_name(enum limit_hit limit)
{
    static const char *const names[] = {"none",   "cpu",       "wall", "memory",
                                        "output", "processes", "disk"};
    return (size_t)limit < sizeof names / sizeof *names ? names[limit] : "unknown";
}
