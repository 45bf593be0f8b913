# Finds Arrow and Parquet C++ and defines ArrowParquet::ArrowParquet.
#
# Uses an installed Arrow (its own CMake packages, through CMAKE_PREFIX_PATH) when there is one,
# else the libraries of the pyarrow wheel that scripts/setup unpacks into REPRISE_DEPS_DIR.
if(TARGET ArrowParquet::ArrowParquet)
  set(ArrowParquet_FOUND TRUE)
  return()
endif()

find_package(Arrow CONFIG QUIET)
find_package(Parquet CONFIG QUIET)
find_package(ArrowCompute CONFIG QUIET)  # part of Arrow itself before release 21
if(Arrow_FOUND AND Parquet_FOUND)
  add_library(ArrowParquet::ArrowParquet INTERFACE IMPORTED)
  target_link_libraries(ArrowParquet::ArrowParquet INTERFACE Arrow::arrow_shared Parquet::parquet_shared)
  if(ArrowCompute_FOUND)
    target_link_libraries(ArrowParquet::ArrowParquet INTERFACE ArrowCompute::arrow_compute_shared)
  endif()
  set(ArrowParquet_FOUND TRUE)
  return()
endif()

find_path(ArrowParquet_INCLUDE_DIR parquet/arrow/reader.h
  HINTS "${REPRISE_DEPS_DIR}/pyarrow/include" NO_DEFAULT_PATH)
foreach(lib arrow parquet arrow_compute)
  # The wheel has no unversioned links.
  file(GLOB _candidates "${REPRISE_DEPS_DIR}/pyarrow/lib${lib}.so.*")
  if(_candidates)
    list(GET _candidates 0 ArrowParquet_${lib}_LIBRARY)
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowParquet
  REQUIRED_VARS ArrowParquet_arrow_LIBRARY ArrowParquet_parquet_LIBRARY ArrowParquet_arrow_compute_LIBRARY
    ArrowParquet_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Run scripts/setup, or put an Arrow C++ with Parquet on CMAKE_PREFIX_PATH.")

if(ArrowParquet_FOUND)
  add_library(ArrowParquet::ArrowParquet INTERFACE IMPORTED)
  target_include_directories(ArrowParquet::ArrowParquet SYSTEM INTERFACE "${ArrowParquet_INCLUDE_DIR}")
  target_link_libraries(ArrowParquet::ArrowParquet INTERFACE
    "${ArrowParquet_parquet_LIBRARY}" "${ArrowParquet_arrow_compute_LIBRARY}" "${ArrowParquet_arrow_LIBRARY}")
endif()
