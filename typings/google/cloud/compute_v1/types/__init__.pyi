from google.cloud.compute_v1.types.compute import *
