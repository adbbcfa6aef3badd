#include "engine_core/models/kv_scales.h"

#include <cmath>
#include <optional>

#include "engine_core/weights/number_type.h"
#include "engine_core/weights/packed_file.h"
#include "engine_core/weights/packed_file_writer.h"

namespace tandem {
namespace {

// REQUIRES: a tensor of one number.
StatusOr<float> NumberOf(const std::string& name, const StoredTensor& stored) {
  if (!IsNumberType(stored.dtype())) {
    return InvalidArgumentError(name + " has dtype " + stored.dtype() +
                                ", must be F64, F32, F16 or BF16");
  }
  return FloatsOf(stored)[0];
}

// A tensor of one number; nullopt: of more.
StatusOr<std::optional<float>> ReadScale(const LoadContext& context, const std::string& name) {
  if (const PackedFile* const file = context.weights.packed()) {
    ASSIGN_OR_RETURN(const Tensor number, file->Vector(name, 1));
    return std::optional<float>(*number.Data<float>());
  }
  ASSIGN_OR_RETURN(const StoredTensor stored, context.weights.GetStored(name));
  if (stored.num_elements() != 1) return std::optional<float>();
  ASSIGN_OR_RETURN(float scale, NumberOf(name, stored));
  if (!(scale > 0) || !std::isfinite(scale)) {
    return InvalidArgumentError(name + " is " + std::to_string(scale) + ", must be above 0");
  }
  if (PackedFileWriter* const writer = context.weights.writer()) {
    RETURN_IF_ERROR(writer->AddVector(name, Tensor(&scale, DType::kF32, {1})));
  }
  return std::optional<float>(scale);
}

// Sets *scale if the checkpoint has it by one of the names that tools give it.
Status LoadScale(const LoadContext& context, const std::string& attention, const std::string& part,
                 float* scale) {
  for (const std::string& name :
       {attention + part + "_scale", attention + part + "_proj." + part + "_scale",
        attention + part + "_proj.output_scale", attention + "kv_scale"}) {
    if (!context.weights.Has(name)) continue;
    ASSIGN_OR_RETURN(const std::optional<float> read, ReadScale(context, name));
    if (read) {
      *scale = *read;
    } else if (context.kv_format == KvFormat::kFloat8) {
      return UnimplementedError("--kv-cache-dtype fp8: " + name +
                                " has a scale for each head, only one for the tensor is supported");
    }
    return OkStatus();
  }
  return OkStatus();
}

}  // namespace

StatusOr<KvScales> LoadKvScales(const LoadContext& context, const std::string& prefix) {
  KvScales scales;
  // A packed model may be served with any cache.
  const bool is_packing = context.weights.writer() != nullptr;
  if (context.kv_format != KvFormat::kFloat8 && !is_packing) return scales;
  RETURN_IF_ERROR(LoadScale(context, prefix + ".self_attn.", "k", &scales.k));
  RETURN_IF_ERROR(LoadScale(context, prefix + ".self_attn.", "v", &scales.v));
  return scales;
}

}  // namespace tandem
