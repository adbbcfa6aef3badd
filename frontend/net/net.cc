#include "frontend/net/net.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <thread>
#include <unordered_set>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/log.h"

namespace tandem {
namespace asio = boost::asio;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
thread_local Shard* current_shard = nullptr;

// steady_clock is CLOCK_MONOTONIC here, so a SystemClock::Monotonic() stamp is one of its times.
asio::steady_timer::time_point TimePoint(double monotonic) {
  return asio::steady_timer::time_point(
      std::chrono::nanoseconds(static_cast<int64_t>(monotonic * 1e9)));
}

}  // namespace

struct Shard::State {
  using Timed = std::variant<Event::Awaiter*, Task>;

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  // All deadlines of the shard in one map, and one timer that sleeps until the earliest. Removing a
  // deadline leaves the timer alone: one useless wake-up is cheaper.
  asio::steady_timer timer{io};
  double timer_set_for = kNever;
  std::multimap<double, Timed> deadlines;
  std::unordered_set<void*> roots;  // frames of spawned coroutines that have not ended
  std::thread thread;

  void AddDeadline(double deadline, Timed timed) {
    deadlines.emplace(deadline, std::move(timed));
    if (deadline < timer_set_for) ArmTimer();
  }

  void ArmTimer() {
    timer_set_for = deadlines.empty() ? kNever : deadlines.begin()->first;
    if (timer_set_for == kNever) return;
    timer.expires_at(TimePoint(timer_set_for));
    timer.async_wait([this](const boost::system::error_code& error) {
      if (!error) RunDeadlines();
    });
  }

  void RunDeadlines();
};

namespace {

// The outermost frame of a spawned coroutine; it destroys itself at its end.
struct Root {
  struct promise_type {
    std::unordered_set<void*>* roots = nullptr;
    ~promise_type() {
      if (roots != nullptr) {
        roots->erase(std::coroutine_handle<promise_type>::from_promise(*this).address());
      }
    }
    Root get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    void unhandled_exception() const { CHECK(false) << "an exception left a coroutine"; }
  };
  std::coroutine_handle<promise_type> handle;
};

Root RunRoot(Awaitable<void> coroutine, const char* what) {
  co_await coroutine;
  LOG_DEBUG << what << " ended";
}

}  // namespace

// ---- Event ----

void Event::Set() {
  set_ = true;
  if (waiter_ == nullptr) return;
  Awaiter* waiter = std::exchange(waiter_, nullptr);
  CHECK(waiter->shard_->OnThread()) << "Event::Set from another thread";
  waiter->StopTimer();
  asio::post(waiter->shard_->state_->io, [self = waiter->self_] { self.resume(); });
}

Event::Awaiter Event::Wait() { return Awaiter(this, kNever); }
Event::Awaiter Event::WaitUntil(double deadline) { return Awaiter(this, deadline); }

void Event::Awaiter::await_suspend(std::coroutine_handle<> self) {
  CHECK(event_->waiter_ == nullptr) << "two coroutines wait for one event";
  shard_ = Shard::Current();
  CHECK(shard_ != nullptr) << "waiting outside a shard";
  self_ = self;
  event_->waiter_ = this;
  if (deadline_ == kNever) return;
  has_timer_ = true;
  shard_->state_->AddDeadline(deadline_, this);
}

void Event::Awaiter::StopTimer() {
  if (!std::exchange(has_timer_, false)) return;
  auto& deadlines = shard_->state_->deadlines;
  auto [it, end] = deadlines.equal_range(deadline_);
  for (; it != end; ++it) {
    const auto* waiter = std::get_if<Awaiter*>(&it->second);
    if (waiter == nullptr || *waiter != this) continue;
    deadlines.erase(it);
    return;
  }
}

Event::Awaiter::~Awaiter() {
  StopTimer();
  if (event_->waiter_ == this) event_->waiter_ = nullptr;
}

void Shard::State::RunDeadlines() {
  const double now = SystemClock().Monotonic();
  while (!deadlines.empty() && deadlines.begin()->first <= now) {
    auto node = deadlines.extract(deadlines.begin());
    if (auto* task = std::get_if<Task>(&node.mapped())) {
      (*task)();
      continue;
    }
    auto* waiter = std::get<Event::Awaiter*>(node.mapped());
    waiter->has_timer_ = false;
    waiter->timed_out_ = true;
    waiter->event_->waiter_ = nullptr;
    waiter->self_.resume();
  }
  ArmTimer();
}

Awaitable<void> SleepUntil(double deadline) {
  Event never;
  co_await never.WaitUntil(deadline);
}

// ---- Shard ----

Shard::Shard(int index) : index_(index), state_(std::make_unique<State>()) {}

Shard::~Shard() {
  Stop();
  Join();
}

void Shard::Start() {
  state_->thread = std::thread([this] {
    current_shard = this;
    SetThreadName("shard-" + std::to_string(index_));
    state_->io.run();
    current_shard = nullptr;
  });
}

void Shard::Stop() { state_->io.stop(); }

void Shard::Join() {
  if (state_->thread.joinable()) state_->thread.join();
  const auto left = std::exchange(state_->roots, {});
  for (void* frame : left) std::coroutine_handle<>::from_address(frame).destroy();
  state_->deadlines.clear();
}

Shard* Shard::Current() { return current_shard; }

void Shard::Post(Task task) {
  asio::post(state_->io, [task = std::move(task)]() mutable { task(); });
}

void Shard::Spawn(Awaitable<void> coroutine, const char* what) {
  auto root = RunRoot(std::move(coroutine), what).handle;
  root.promise().roots = &state_->roots;
  state_->roots.insert(root.address());
  if (OnThread()) {
    root.resume();
  } else {
    asio::post(state_->io, [root] { root.resume(); });
  }
}

void Shard::At(double deadline, Task task) { state_->AddDeadline(deadline, std::move(task)); }

// ---- Socket ----

// Outlives the Socket while the reactor still holds a handler.
struct Socket::State {
  explicit State(asio::io_context& io) : descriptor(io) {}
  asio::posix::stream_descriptor descriptor;
  bool closed = false;
  std::function<void()> on_readable;
  std::function<void()> on_writable;
};

Socket::Socket(Shard* shard, int fd) : fd_(fd), state_(std::make_shared<State>(shard->state_->io)) {
  boost::system::error_code error;
  state_->descriptor.assign(fd, error);
  if (!error) return;
  // The reactor is full. With both directions shut every read returns the end, which owners handle.
  LOG_ERROR << "cannot watch a socket: " << error.message();
  ::shutdown(fd, SHUT_RDWR);
}

Socket::~Socket() { Close(); }

void Socket::NotifyReadable(std::function<void()> callback) {
  state_->on_readable = std::move(callback);
  state_->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                [state = state_](const boost::system::error_code&) {
                                  if (state->closed) return;
                                  std::exchange(state->on_readable, nullptr)();
                                });
}

void Socket::NotifyWritable(std::function<void()> callback) {
  state_->on_writable = std::move(callback);
  state_->descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                                [state = state_](const boost::system::error_code&) {
                                  if (state->closed) return;
                                  std::exchange(state->on_writable, nullptr)();
                                });
}

void Socket::Close() {
  if (std::exchange(state_->closed, true)) return;
  boost::system::error_code error;
  state_->descriptor.close(error);
  if (error) ::close(fd_);
  fd_ = -1;
}

// ---- TextPool ----

// An io_context that several threads run is a queue with a lock of its own.
struct TextPool::State {
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::vector<std::thread> threads;
  std::function<void(double)> on_start;
  std::atomic<int64_t> num_waiting{0};
};

TextPool::TextPool(int num_threads, std::function<void(double)> on_start)
    : state_(std::make_unique<State>()) {
  CHECK_GE(num_threads, 1);
  state_->on_start = std::move(on_start);
  for (int i = 0; i < num_threads; ++i) {
    state_->threads.emplace_back([state = state_.get(), i] {
      SetThreadName("text-" + std::to_string(i));
      state->io.run();
    });
  }
}

TextPool::~TextPool() { Stop(); }

void TextPool::Stop() {
  state_->io.stop();
  for (auto& thread : state_->threads) thread.join();
  state_->threads.clear();
}

void TextPool::Submit(Task job) {
  state_->num_waiting.fetch_add(1, std::memory_order_relaxed);
  const double submitted = SystemClock().Monotonic();
  asio::post(state_->io, [state = state_.get(), submitted, job = std::move(job)]() mutable {
    state->num_waiting.fetch_sub(1, std::memory_order_relaxed);
    if (state->on_start) state->on_start(SystemClock().Monotonic() - submitted);
    job();
  });
}

int64_t TextPool::num_waiting() const {
  return state_->num_waiting.load(std::memory_order_relaxed);
}

void internal::PoolHop::await_suspend(std::coroutine_handle<> self) {
  Shard* shard = Shard::Current();
  CHECK(shard != nullptr) << "OnPool outside a shard";
  pool->Submit([shard, self, job = std::move(work)]() mutable {
    job();
    shard->Post([self] { self.resume(); });
  });
}

}  // namespace tandem
