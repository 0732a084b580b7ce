// A client in C++: adds a task, waits for it, reads the result, prints JSON.
// Usage: client HOST PORT
// Everything it knows of oj is thrift/judicator.thrift.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TSocket.h>

#include "Judicator.h"
#include "judicator_constants.h"

using apache::thrift::TException;
using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TFramedTransport;
using apache::thrift::transport::TSocket;

namespace {

std::string quote(const std::string& text) {
    std::string quoted = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += static_cast<char>(c);
        } else if (c < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            quoted += escape;
        } else {
            quoted += static_cast<char>(c);
        }
    }
    return quoted + "\"";
}

template <typename Enum> std::string name_of(const Enum& value) {
    std::ostringstream stream;
    stream << value; // the generated operator prints the name
    return stream.str();
}

oj::Test make_test(const std::string& name, const std::string& input, const std::string& expected) {
    oj::Test test;
    test.__set_name(name);
    oj::Data data;
    data.__set_inline_data(input);
    test.__set_input(data);
    data.__set_inline_data(expected);
    test.__set_expected(data);
    return test;
}

oj::Task make_task() {
    oj::Task task;
    oj::Step execute;
    execute.__set_command({"/bin/cat"});
    oj::Limits limits;
    limits.__set_cpu_ms(2000);
    execute.__set_limits(limits);
    task.__set_execute(execute);
    task.__set_tests({make_test("right", "hello\n", "hello\n"), make_test("wrong", "1\n", "2\n")});
    task.__set_user("cpp");
    task.__set_key("cpp-" + std::to_string(std::rand()) + "-" + std::to_string(time(nullptr)));
    return task;
}

oj::TaskInfo wait_for(oj::JudicatorClient& judicator, const std::string& id) {
    oj::TaskInfo info;
    oj::Status::type known = oj::Status::PENDING;
    do {
        judicator.wait(info, id, known, 10000, oj::g_judicator_constants.GET_RESULT, -1);
        known = info.status;
    } while (!info.done);
    return info;
}

bool knows(oj::JudicatorClient& judicator, const std::string& id) {
    try {
        oj::TaskInfo info;
        judicator.get(info, id, oj::g_judicator_constants.GET_SUMMARY);
        return true;
    } catch (const oj::NotFound&) {
        return false;
    }
}

void print(const oj::TaskInfo& info, const std::string& again, bool unknown_is_known,
           const std::string& offending_field) {
    std::cout << "{\"id\": " << quote(info.id) << ", \"status\": " << quote(name_of(info.status))
              << ", \"verdict\": " << quote(name_of(info.verdict)) << ", \"added_again\": "
              << quote(again) << ", \"unknown_is_known\": " << (unknown_is_known ? "true" : "false")
              << ", \"offending_field\": " << quote(offending_field) << ", \"tests\": [";
    const char* separator = "";
    for (const oj::TestResult& test : info.result.tests) {
        std::cout << separator << "{\"name\": " << quote(test.name) << ", \"verdict\": "
                  << quote(name_of(test.verdict)) << ", \"stdout\": "
                  << quote(test.outcome.stdout_data) << ", \"exit_code\": "
                  << test.outcome.exit_code << ", \"wall_ms\": " << test.outcome.wall_ms << "}";
        separator = ", ";
    }
    std::cout << "]}" << std::endl;
}

} // namespace

int main(int count, char** words) {
    if (count != 3) {
        std::cerr << "usage: client HOST PORT\n";
        return 2;
    }
    std::srand(static_cast<unsigned>(time(nullptr)));
    auto socket = std::make_shared<TSocket>(words[1], std::atoi(words[2]));
    socket->setConnTimeout(2000);
    socket->setRecvTimeout(30000);
    auto transport = std::make_shared<TFramedTransport>(socket);
    oj::JudicatorClient judicator(std::make_shared<TBinaryProtocol>(transport));
    try {
        transport->open();
        oj::Task task = make_task();
        std::string id;
        std::string again;
        judicator.add(id, task);
        judicator.add(again, task); // the key makes it the same task
        std::string offending_field;
        try {
            std::string never;
            oj::Task wrong = task;
            wrong.execute.limits.__set_cpu_ms(-1);
            wrong.__set_key("wrong");
            judicator.add(never, wrong);
        } catch (const oj::InvalidRequest& error) {
            offending_field = error.field;
        }
        bool unknown_is_known = knows(judicator, std::string(24, '0'));
        print(wait_for(judicator, id), again, unknown_is_known, offending_field);
        transport->close();
    } catch (const TException& error) {
        std::cerr << "client: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
