#pragma once

// A callable that is borrowed for the length of a call: no allocation, no copy.

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace tandem {

// void(begin, end): the work items [begin, end). May run on several threads at once, on disjoint
// ranges; must not call back into the backend or the pool.
class RangeFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFunction>)
      RangeFunction(F&& function)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}

  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

}  // namespace tandem
