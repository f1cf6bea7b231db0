"""What controllers, kubelets and the disruption controller do next. Pure: objects and the time in, changes out."""
