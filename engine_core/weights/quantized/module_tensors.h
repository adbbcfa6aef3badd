#pragma once

// The tensors of one module ("model.layers.0.mlp.up_proj") of a checkpoint, in the types and shapes
// that its format demands.
// Thread: the loader's. Borrows the Weights. Failure: NotFound for a missing tensor,
// InvalidArgument for another type or shape; the message names the tensor.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "engine_core/weights/safetensors.h"

namespace tandem {

class ModuleTensors {
 public:
  ModuleTensors(Weights* weights, std::string module)
      : weights_(weights), module_(std::move(module)) {}

  const std::string& module() const { return module_; }
  bool Has(std::string_view suffix) const { return weights_->Has(NameOf(suffix)); }
  // "" when the tensor is absent.
  std::string DTypeOf(std::string_view suffix) const;
  // Of any type and shape, of any shape, or of exactly these. dtype: as the file spells it.
  StatusOr<StoredTensor> Get(std::string_view suffix) const;
  StatusOr<StoredTensor> Get(std::string_view suffix, std::string_view dtype) const;
  StatusOr<StoredTensor> Get(std::string_view suffix, std::string_view dtype,
                             std::initializer_list<int64_t> shape) const;
  // Finite numbers of any float type, F8_E4M3 included, of any shape or of exactly this one.
  StatusOr<std::vector<float>> Floats(std::string_view suffix) const;
  StatusOr<std::vector<float>> Floats(std::string_view suffix,
                                      std::initializer_list<int64_t> shape) const;
  // Of a tensor of exponents, U8 or F8_E8M0: the power of two that a byte stands for.
  StatusOr<float> PowerOf(std::string_view suffix, std::byte exponent) const;
  // A tensor of one finite number, whatever its rank.
  StatusOr<float> Scalar(std::string_view suffix) const;
  // I32, as the words that codes are packed in.
  StatusOr<std::vector<uint32_t>> Words(std::string_view suffix,
                                        std::initializer_list<int64_t> shape) const;

  // How a message names a tensor, with its file.
  std::string PlaceOf(std::string_view suffix) const { return weights_->PlaceOf(NameOf(suffix)); }
  Status Error(std::string_view suffix, const std::string& problem) const;

 private:
  Status CheckShape(std::string_view suffix, const StoredTensor& tensor,
                    std::initializer_list<int64_t> shape) const;
  StatusOr<std::vector<float>> FiniteFloats(std::string_view suffix,
                                            const StoredTensor& tensor) const;
  std::string NameOf(std::string_view suffix) const { return module_ + std::string(suffix); }
  Weights* weights_;
  std::string module_;
};

}  // namespace tandem
