#include "common/thread_states.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/mailbox.h"
#include "common/unique_fd.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string Stat(char letter) { return std::string("7 (a ) b) ") + letter + " 1 7 7 0"; }
std::string Call(long number) { return std::to_string(number) + " 0x7f00 0x80 0x0"; }

TEST_CASE("thread states: what waits is no thread that runs or is about to") {
  CHECK(ParseThreadState(Stat('S'), Call(SYS_futex)) == ThreadState::kAwaitsWord);
  for (const long call : {SYS_ppoll, SYS_rt_sigtimedwait, SYS_recvmsg, SYS_restart_syscall}) {
    CHECK(ParseThreadState(Stat('S'), Call(call)) == ThreadState::kAwaitsEvent);
  }
  // It lacks a CPU; a page is read; a debugger or SIGSTOP holds it.
  for (const char letter : {'R', 'D', 't', 'T', 'Z'}) {
    CHECK(ParseThreadState(Stat(letter), Call(SYS_futex)) == ThreadState::kRuns);
  }
  CHECK(ParseThreadState(Stat('S'), "running\n") == ThreadState::kRuns);
  // A page of a file system that a program serves, and a file there.
  CHECK(ParseThreadState(Stat('S'), "-1 0x7ffc 0x7f00") == ThreadState::kRuns);
  CHECK(ParseThreadState(Stat('S'), Call(SYS_pread64)) == ThreadState::kRuns);
  // The kernel shows nothing.
  CHECK(ParseThreadState(Stat('S'), "") == ThreadState::kRuns);
  CHECK(ParseThreadState("", Call(SYS_futex)) == ThreadState::kRuns);
  CHECK(ParseThreadState("7 (a) ", Call(SYS_futex)) == ThreadState::kRuns);
}

TEST_CASE("thread states: threads of this process are found where they wait") {
  Mailbox<int> gate;
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  Mailbox<pid_t> started;
  std::thread for_word([&] {
    started.Push(OwnThread());
    gate.Wait();
  });
  std::thread for_event([&] {
    started.Push(OwnThread());
    pollfd waited = {event.get(), POLLIN, 0};
    while (poll(&waited, 1, -1) < 0) {
    }
  });
  std::vector<pid_t> ids;
  std::vector<pid_t> all;
  while (all.size() < 2) {
    started.Wait();
    started.Drain(&ids);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  const std::vector<pid_t> own = OwnThreads();
  for (const pid_t id : all) CHECK(std::ranges::count(own, id) == 1);
  CHECK(std::ranges::count(own, OwnThread()) == 1);
  CHECK(ReadThreadState(OwnThread()) == ThreadState::kRuns);
  const auto either = [&](pid_t id) { return ReadThreadState(id) != ThreadState::kRuns; };
  while (!either(all[0]) || !either(all[1])) std::this_thread::yield();
  CHECK(ReadThreadState(all[0]) != ReadThreadState(all[1]));
  gate.Close();
  CHECK(eventfd_write(event.get(), 1) == 0);
  for_word.join();
  for_event.join();
}

}  // namespace
}  // namespace tandem
