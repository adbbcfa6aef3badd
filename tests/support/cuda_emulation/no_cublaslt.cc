#include "kernels/cuda/libraries/cublaslt.h"

namespace tandem {

// Emulated devices have no cuBLASLt: all products run on our own kernels.
std::unique_ptr<CublasLt> CublasLt::Open(void*) { return nullptr; }

}  // namespace tandem
