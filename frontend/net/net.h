#pragma once

// The frontend's coroutines, its network threads (shards) and its text pool. Asio lives behind this
// header, in net.cc; nothing here includes it.
//
// A shard is one thread with its own sockets, timers and coroutines; nothing of a shard is touched
// from another thread except through Post. A coroutine returns Awaitable<T>, is started by
// co_await or by Shard::Spawn, and always resumes on the shard it was spawned on. Coroutines take
// parameters by value or by references that outlive them, never capture by a coroutine lambda, and
// hold no lock across co_await. Nothing is cancelled by force: a coroutine waits for an Event,
// which its peer sets, or for a point in time. Times are seconds; deadlines are
// SystemClock::Monotonic() stamps.

#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "common/check.h"

namespace tandem {

class Shard;

// A callable that may own move-only things; runs at most once.
class Task {
 public:
  Task() = default;
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Task>>>
  Task(F&& f)  // NOLINT(google-explicit-constructor)
      : call_(std::make_unique<Call<std::decay_t<F>>>(std::forward<F>(f))) {}
  explicit operator bool() const { return call_ != nullptr; }
  void operator()() {
    const auto call = std::move(call_);
    call->Run();
  }

 private:
  struct CallBase {
    virtual ~CallBase() = default;
    virtual void Run() = 0;
  };
  template <class F>
  struct Call final : CallBase {
    explicit Call(F f) : function(std::move(f)) {}
    void Run() override { function(); }
    F function;
  };
  std::unique_ptr<CallBase> call_;
};

// ---- Coroutines ----

template <class T = void>
class Awaitable;

namespace internal {

// When a child ends while its parent is still starting it, the parent continues without suspending,
// so that a loop over children that never wait does not grow the stack (gcc -O0 makes no tail
// calls).
struct PromiseBase {
  std::coroutine_handle<> parent;
  bool starting = false;
  bool done = false;

  struct Final {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      Promise& promise = self.promise();
      promise.done = true;
      if (!promise.starting && promise.parent) promise.parent.resume();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  Final final_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept {
    CHECK(false) << "an exception left a coroutine";
    __builtin_unreachable();
  }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Awaitable<T> get_return_object();
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T Take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Awaitable<void> get_return_object();
  void return_void() const {}
  void Take() const {}
};

}  // namespace internal

// A coroutine that has not started. co_await runs it to its end and gives its value.
template <class T>
class [[nodiscard]] Awaitable {
 public:
  using promise_type = internal::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Awaitable(Handle handle) : handle_(handle) {}
  Awaitable(Awaitable&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Awaitable& operator=(Awaitable&&) = delete;
  ~Awaitable() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> parent) {
    promise_type& promise = handle_.promise();
    promise.parent = parent;
    promise.starting = true;
    handle_.resume();
    promise.starting = false;
    return !promise.done;
  }
  T await_resume() { return handle_.promise().Take(); }

 private:
  Handle handle_;
};

template <class T>
Awaitable<T> internal::Promise<T>::get_return_object() {
  return Awaitable<T>(std::coroutine_handle<Promise>::from_promise(*this));
}
inline Awaitable<void> internal::Promise<void>::get_return_object() {
  return Awaitable<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

// ---- Waiting ----

// One side sets it, one coroutine of the same shard waits for it. Stays set until Reset. Set does
// not run the waiter itself: the shard's loop resumes it. Thread: the shard's. REQUIRES: at most
// one waiter at a time; not destroyed while waited for.
class Event {
 public:
  class Awaiter;
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Set();
  void Reset() { set_ = false; }
  bool is_set() const { return set_; }

  // co_await event.Wait() is true; WaitUntil is false when the deadline passed first.
  Awaiter Wait();
  Awaiter WaitUntil(double deadline);

 private:
  friend class Shard;
  bool set_ = false;
  Awaiter* waiter_ = nullptr;
};

class Event::Awaiter {
 public:
  Awaiter(Event* event, double deadline) : event_(event), deadline_(deadline) {}
  Awaiter(const Awaiter&) = delete;
  ~Awaiter();
  bool await_ready() const { return event_->set_; }
  void await_suspend(std::coroutine_handle<> self);
  bool await_resume() const { return !timed_out_; }

 private:
  friend class Event;
  friend class Shard;
  void StopTimer();
  Event* event_;
  double deadline_;
  std::coroutine_handle<> self_;
  Shard* shard_ = nullptr;
  bool has_timer_ = false;
  bool timed_out_ = false;
};

// Waits on the current shard.
Awaitable<void> SleepUntil(double deadline);

// ---- Threads ----

// A network thread. Post from any thread; everything else from its own thread, or before Start.
class Shard {
 public:
  explicit Shard(int index);  // the thread is named "shard-<index>"
  ~Shard();
  Shard(const Shard&) = delete;

  void Start();
  // Leaves the loop once the current task ends; any thread.
  void Stop();
  // Waits for the thread, then destroys the coroutines that have not ended. What they refer to must
  // live until then; a Socket must be destroyed before its shard.
  void Join();

  int index() const { return index_; }
  bool OnThread() const { return Current() == this; }
  static Shard* Current();  // of the calling thread, or null

  void Post(Task task);
  // Runs a coroutine to its end on this shard. `what` names it in logs; a string literal.
  void Spawn(Awaitable<void> coroutine, const char* what);
  // Runs task after the deadline, unless the shard stops first.
  void At(double deadline, Task task);

 private:
  friend class Event;
  friend class Socket;
  struct State;
  int index_;
  std::unique_ptr<State> state_;
};

// A non-blocking descriptor in a shard's reactor. Owns the descriptor.
// Thread: the shard's. Each Notify calls back once, from the loop, when the descriptor is ready or
// has failed; never after Close. At most one call of each kind may be pending.
class Socket {
 public:
  Socket(Shard* shard, int fd);
  ~Socket();
  Socket(const Socket&) = delete;

  int fd() const { return fd_; }
  void NotifyReadable(std::function<void()> callback);
  void NotifyWritable(std::function<void()> callback);
  void Close();

 private:
  struct State;
  int fd_;
  std::shared_ptr<State> state_;
};

// Threads for pure work that would hold up a shard: templates, tokenizing, checking. Jobs start in
// order of arrival. Its users bound the queue: each open exchange has one job at most.
class TextPool {
 public:
  // Threads are named "text-<i>". on_start: called by the thread of each job before it, with the
  // seconds for which the job has waited.
  explicit TextPool(int num_threads, std::function<void(double waited_s)> on_start = {});
  ~TextPool();  // stops
  TextPool(const TextPool&) = delete;

  void Submit(Task job);
  int64_t num_waiting() const;  // jobs that have not begun; any thread
  // Waits for the running jobs and drops the queued ones; no job runs afterwards. Call it before
  // joining the shards that wait for jobs: a job writes into the frame of the waiting coroutine.
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace internal {

struct PoolHop {
  TextPool* pool;
  Task work;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self);
  void await_resume() const {}
};

}  // namespace internal

// Runs work() on the pool and resumes the caller with its result on the calling shard:
//   auto work = [&tokenizer, text = std::move(text)] { … };
//   auto ids = co_await OnPool(pool, std::move(work));
// Not with the lambda written inside the call: gcc 12 destroys the captures of such a lambda twice.
template <class F, class R = std::invoke_result_t<F>>
Awaitable<R> OnPool(TextPool* pool, F work) {
  std::optional<R> result;
  internal::PoolHop hop{pool, Task([&result, &work] { result.emplace(work()); })};
  co_await hop;
  co_return std::move(*result);
}

}  // namespace tandem
