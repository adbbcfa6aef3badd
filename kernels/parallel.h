#pragma once

// A reference to a callable for the length of a call: no allocation, no copy.

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace tandem {

template <class... Args>
class BorrowedFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, BorrowedFunction>)
      BorrowedFunction(F&& function)  // NOLINT: the constraint keeps copies out
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Args... args) {
          (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}

  void operator()(Args... args) const { call_(object_, args...); }

 private:
  void* object_;
  void (*call_)(void*, Args...);
};

// (begin, end): the work items [begin, end). Runs on several threads at once, on disjoint ranges;
// must not call the backend or the pool.
using RangeFunction = BorrowedFunction<int64_t, int64_t>;

// (begin, end, thread): thread, in [0, num_threads), is the running one, for scratch of its own.
using ThreadRangeFunction = BorrowedFunction<int64_t, int64_t, int>;

}  // namespace tandem
