#pragma once

// From a tensor's dtype to the C++ type of its numbers: bf16 or float32.

#include "kernels/tensor.h"

namespace tandem {

// f(T* data of x)
template <class F>
void WithType(const Tensor& x, F f) {
  if (x.dtype == DType::kBf16) return f(x.Data<Bf16>());
  f(x.Data<float>());
}

// f.operator()<Out, X>(Out* data of out, const X* data of x)
template <class F>
void WithTypes(const Tensor& out, const Tensor& x, F f) {
  WithType(out, [&]<class Out>(Out* out_data) {
    WithType(x, [&]<class X>(X* x_data) {
      f.template operator()<Out, X>(out_data, static_cast<const X*>(x_data));
    });
  });
}

}  // namespace tandem
