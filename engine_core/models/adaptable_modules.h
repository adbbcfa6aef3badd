#pragma once

// The matrices of a model as adapters know them: by name, and whole, whichever ranks have rows of
// them. Values; any thread.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "engine_core/models/adapter_sites.h"

namespace tandem {

struct AdaptableModule {
  int64_t rows = 0, columns = 0;
  bool is_embedding = false;
  bool operator==(const AdaptableModule&) const = default;
};
using AdaptableModules = std::map<std::string, AdaptableModule, std::less<>>;

// Those that a rank has something of.
inline AdaptableModules ModulesOf(const AdapterSites& sites) {
  AdaptableModules modules;
  for (const AdapterSite& site : sites.all()) {
    for (const AdapterSite::Part& part : site.parts) {
      modules[part.module] = {part.module_rows, site.columns, site.is_embedding};
    }
  }
  return modules;
}

}  // namespace tandem
