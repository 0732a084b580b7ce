/* libFuzzer over the parser of oj-box's messages (daemons/box/request.c). Besides what the
 * sanitizers see, an accepted message must be what its head says, wholly inside its bytes. */
#include "box.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void check_string(const char *text, const char *bytes, size_t size)
{
    expect(text >= bytes && text < bytes + size);
    expect(memchr(text, 0, (size_t)(bytes + size - text)) != NULL);
}

static void check_request(const struct request *request, const char *bytes, size_t size)
{
    const struct message_head *head = &request->head;
    int descriptors = request_descriptors(head);

    expect(size <= MESSAGE_MAX_BYTES);
    if (head->kind != MESSAGE_RUN) {
        expect(descriptors == 0 && size == sizeof *head);
        return;
    }
    expect(descriptors == 4 || descriptors == 5);
    expect(descriptors <= DESCRIPTORS_MAX);
    expect(head->argc >= 1 && head->argc <= ARGUMENTS_MAX && head->envc <= ARGUMENTS_MAX);
    expect(head->cpu_us && head->wall_us && head->memory_bytes && head->processes && head->files);
    /* What the box multiplies and adds must not wrap. */
    expect(head->wall_us * 1000 / 1000 == head->wall_us);
    expect(head->cpu_us * 1000 / 1000 == head->cpu_us);
    expect(head->memory_bytes + (16 << 20) > head->memory_bytes);
    expect(head->files + 64 > head->files);
    check_string(request->cwd, bytes, size);
    expect(request->cwd[0] == '/');
    for (uint32_t i = 0; i < head->argc; i++)
        check_string(request->argv[i], bytes, size);
    for (uint32_t i = 0; i < head->envc; i++)
        check_string(request->envp[i], bytes, size);
    expect(request->argv[0][0] && !request->argv[head->argc] && !request->envp[head->envc]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct request request;
    struct fault fault = {.text = ""};
    uint64_t value;

    /* Of the exact size, so that the sanitizer sees each byte that is read too far. */
    char *bytes = malloc(size ? size : 1), *text = malloc(size + 1);
    if (!bytes || !text)
        abort();
    if (size)
        memcpy(bytes, data, size);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    if (request_parse(&request, bytes, size, &fault) == 0)
        check_request(&request, bytes, size);
    else
        expect(fault.text[0] && memchr(fault.text, 0, sizeof fault.text));
    if (parse_duration(text, &value))
        expect(value <= UINT64_MAX / 2);
    if (parse_size(text, &value))
        expect(value <= UINT64_MAX / 2);
    free(text);
    free(bytes);
    return 0;
}
