#pragma once

// The matrices of a model that adapters may change. The model's loader registers each one that it
// packs, so an architecture needs no list of modules.
// Thread: the loader fills it; const afterwards, for any thread. A value, which stays when the
// model sleeps.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/packed_matrix.h"

namespace tandem {

struct AdapterSite {
  // Rows of the packed matrix that are rows of a module, by its name in adapters.
  struct Part {
    std::string module;       // "model.layers.0.self_attn.q_proj"
    int64_t module_rows = 0;  // of the whole module
    int64_t first = 0;        // of the module's rows
    int64_t num_rows = 0;
    int64_t begin = 0;  // the place of the first in the packed matrix
  };
  std::vector<Part> parts;
  int64_t columns = 0;
  bool is_embedding = false;
  MatrixForm matrix = {};
};

class AdapterSites {
 public:
  // The number of the site.
  int Add(AdapterSite site) {
    sites_.push_back(std::move(site));
    return static_cast<int>(sites_.size()) - 1;
  }
  const std::vector<AdapterSite>& all() const { return sites_; }

 private:
  std::vector<AdapterSite> sites_;
};

constexpr int kNoAdapterSite = -1;

}  // namespace tandem
