#include "kernels/cuda/libraries/cublaslt.h"

namespace tandem {

// There is no such library for emulated devices: all products run on our own kernels.
std::unique_ptr<CublasLt> CublasLt::Open(void*) { return nullptr; }

}  // namespace tandem
