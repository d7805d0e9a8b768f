// What a matrix looks like to programs (JSON), to people (tables, and lines that name outliers), and as a drawing (a
// heat map). Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/base/json.h"
#include "bench/matrix/matrix.h"

namespace fairlead::bench {

struct MatrixOutliers {
  Outliers bandwidth, latency;
};
[[nodiscard]] MatrixOutliers find_outliers(const Matrix& matrix, double factor);

/// docs/schemas/matrix.schema.json
[[nodiscard]] Json report(const Matrix& matrix, const MatrixPlan& plan, const MatrixOutliers& outliers, double factor);
/// Who the ranks are, both tables, and what is slow.
[[nodiscard]] std::vector<std::string> lines(const Matrix& matrix, const MatrixOutliers& outliers);
/// An SVG that needs nothing else: the darker, the slower.
[[nodiscard]] std::string draw(const Matrix& matrix, const MatrixOutliers& outliers);

}  // namespace fairlead::bench
